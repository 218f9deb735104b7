package server

import (
	"runtime"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

// Limits are the limits for the requests of callers. The default of a field is named in its comment. A zero
// field has its default.
type Limits struct {
	MaxBody   int64 // bytes of one state; 64 MiB. Other bodies have maxSmallBody
	MaxImport int64 // bytes of one import, which is never in memory as a whole; 16 GiB
	MaxHeader int   // bytes of a request's line and headers, which can have metadata; 256 KiB

	InFlightBytes int64 // bytes of all bodies in memory at once; 512 MiB. One owner may have half
	HeadBytes     int64 // bytes of the headers of all requests, beyond headFree each; 64 MiB. One owner may have a quarter
	StateReads    int   // replies with a whole state at once; 32. One owner may have half
	HeavyJobs     int   // patches and differences at once; one per CPU. One owner may have half, at least one

	Connections      int // of all owners together; 4096
	OwnerConnections int // 1024
	OwnerRequests    int // of one owner, in progress at once; 512. More requests wait in order
	OwnerFollowers   int // of one owner, following events at once; 256. They do not count as requests

	// OwnerWritesPerSecond limits all routes that write. 0 means no limit: the shares above protect owners from
	// each other; a rate only protects owners from their own programs.
	OwnerWritesPerSecond int

	Wait          time.Duration // how long a request waits for its share before it gets busy; 2s
	HeaderTimeout time.Duration // for the line and headers of a request; 10s
	BodyGrace     time.Duration // for a body or a reply, before MinRate applies; 10s
	MinRate       int64         // bytes per second of the slowest client that the server waits for; 1 MiB
	IdleTimeout   time.Duration // between two requests; 10 min
	ReadTimeout   time.Duration // the store's time for a read; 60s
	WriteTimeout  time.Duration // the store's time for a write; 60s
	LongTimeout   time.Duration // the same for erase, prune, import and export; 15 min
	StopTimeout   time.Duration // how long Serve waits for requests in progress after its context has ended; 10s
}

const (
	// maxSmallBody is the limit of every body without a state.
	maxSmallBody = 1 << 20
	// envelopeRoom is the maximum size of an envelope without its state.
	envelopeRoom = 1 << 20
	// maxValues is the limit of bodies with several values that have their own limits: arguments and result of a
	// step, a batch of events.
	maxValues = 2*ckpt.MaxValue + envelopeRoom
	// maxValueBody is the limit of bodies with one such value.
	maxValueBody = ckpt.MaxValue + envelopeRoom
	// spareConnections is the number of connections above a limit that still get an answer, so that a client
	// learns the reason. Connections above them are closed without an answer.
	spareConnections = 64
)

func (l Limits) withDefaults() Limits {
	orElse(&l.MaxBody, 64<<20)
	orElse(&l.MaxImport, 16<<30)
	orElse(&l.MaxHeader, 256<<10)
	orElse(&l.InFlightBytes, 512<<20)
	orElse(&l.HeadBytes, 64<<20)
	orElse(&l.StateReads, 32)
	orElse(&l.HeavyJobs, runtime.GOMAXPROCS(0))
	orElse(&l.Connections, 4096)
	orElse(&l.OwnerConnections, 1024)
	orElse(&l.OwnerRequests, 512)
	orElse(&l.OwnerFollowers, 256)
	orElse(&l.Wait, 2*time.Second)
	orElse(&l.HeaderTimeout, 10*time.Second)
	orElse(&l.BodyGrace, 10*time.Second)
	orElse(&l.MinRate, 1<<20)
	orElse(&l.IdleTimeout, 10*time.Minute)
	orElse(&l.ReadTimeout, time.Minute)
	orElse(&l.WriteTimeout, time.Minute)
	orElse(&l.LongTimeout, 15*time.Minute)
	orElse(&l.StopTimeout, 10*time.Second)
	// The largest single request must fit into one owner's half, or it could never run.
	l.InFlightBytes = max(l.InFlightBytes, 2*l.largestHold())
	l.HeadBytes = max(l.HeadBytes, 4*int64(l.MaxHeader+headPart))
	return l
}

func orElse[T int | int64 | time.Duration](v *T, def T) {
	if *v <= 0 {
		*v = def
	}
}

// maxEnvelope is the largest body that a save can have.
func (l Limits) maxEnvelope() int64 { return l.MaxBody + envelopeRoom }

// maxRunEnd is the largest body that the end of a run can have: a final state and a result.
func (l Limits) maxRunEnd() int64 { return l.maxEnvelope() + ckpt.MaxValue }

// largestHold is the memory for the largest body and the copies that are made of it.
func (l Limits) largestHold() int64 {
	return max(2*max(l.maxRunEnd(), maxValues), filesHold, 4*ckpt.MaxTreeBody)
}

// timeFor returns how long the transfer of n bytes may take.
func (l Limits) timeFor(n int64) time.Duration {
	return l.BodyGrace + time.Duration(float64(n)/float64(l.MinRate)*float64(time.Second))
}

// The memory for the headers of requests.
const (
	headFree = 8 << 10  // for each connection: enough for most requests
	headPart = 16 << 10 // the part that is taken at once
)
