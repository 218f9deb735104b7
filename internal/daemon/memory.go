package daemon

import (
	"context"
	"os"
	"runtime/debug"
	runtimemetrics "runtime/metrics"
	"time"

	"github.com/ckptsidecar/ckptsidecar/internal/periodic"
)

// giver returns memory to the system after load. The Go run-time keeps memory until the
// next collection, which can be minutes away on an idle daemon, and keeps some of it for
// much longer.
type giver struct {
	every    time.Duration
	garbage  int64         // the bytes of memory that may be garbage; 0 leaves the decision to the run-time
	held     func() uint64 // bytes of memory that the heap has from the system
	live     func() uint64 // the part of it that was in use at the last collection
	collect  func(percent int)
	answered func() int64 // the number of requests since the start
	free     func()       // collects, and returns free memory to the system

	percent int // the garbage that the run-time tolerates, in percent of the memory in use

	floor uint64 // what was held after the last return of memory
	least uint64 // the least that was ever held after a return of memory
	seen  int64  // the value of answered at the last look

	skip, wait int // at rest: how many looks to skip now, and after the next attempt
}

// The amounts that are worth returning, and the amount of work that counts as rest.
const (
	giveLeast = 16 << 20
	giveEvery = 10 * time.Second
	giveQuiet = 10 // at most this many requests in giveEvery count as rest
	giveRest  = 30 // the most looks between two attempts at rest
)

// The garbage that the run-time may keep: as much as the memory in use, and more if
// little is in use.
const (
	leastPercent = 100
	mostPercent  = 400
)

func newGiver(garbage int64, answered func() int64) *giver {
	g := &giver{every: giveEvery, garbage: garbage, held: heapHeld, live: heapLive, answered: answered, free: debug.FreeOSMemory,
		collect: func(percent int) { debug.SetGCPercent(percent) }}
	if os.Getenv("GOGC") != "" {
		g.garbage = 0
	}
	g.free() // return what the start no longer needs
	g.floor = g.held()
	g.least = g.floor
	g.pace()
	return g
}

// pace sets how much garbage may exist. A collection costs the same however much garbage
// there is, so the run-time collects less often, and uses less processor time, if more
// garbage may exist.
func (g *giver) pace() {
	percent := leastPercent
	if g.garbage > 0 {
		percent = int(min(max(g.garbage*100/int64(max(g.live(), 1<<20)), leastPercent), mostPercent))
		if percent != g.percent {
			g.collect(percent)
		}
	}
	g.percent = percent
}

func (g *giver) run(ctx context.Context) {
	_ = periodic.Every(ctx, g.every, func(context.Context) error { g.once(); return nil })
}

// once returns memory if the heap holds much more than after the last time, and more than
// the garbage that may exist. At rest, it also returns memory if the heap holds more than
// the least ever, because the memory that was in use at the last time can be free now. At
// rest, it tries less and less often, because the memory can really be in use.
func (g *giver) once() (gave bool) {
	defer g.pace()
	held, answered := g.held(), g.answered()
	quiet := answered-g.seen < giveQuiet
	g.seen = answered
	g.floor = min(g.floor, held)
	if much := held > g.floor*uint64(100+g.percent)/100+giveLeast; !much && !g.restDue(quiet, held) {
		return false
	}
	g.free()
	g.floor = g.held()
	g.least = min(g.least, g.floor)
	return true
}

// restDue reports whether it is time for an attempt at rest.
func (g *giver) restDue(quiet bool, held uint64) bool {
	if !quiet || held <= g.least+giveLeast {
		g.skip, g.wait = 0, 1
		return false
	}
	if g.skip > 0 {
		g.skip--
		return false
	}
	g.skip = g.wait
	g.wait = min(2*g.wait, giveRest)
	return true
}

// heapHeld returns the memory that the heap has from the system and has not returned.
func heapHeld() uint64 {
	samples := []runtimemetrics.Sample{
		{Name: "/memory/classes/heap/objects:bytes"}, {Name: "/memory/classes/heap/unused:bytes"}, {Name: "/memory/classes/heap/free:bytes"},
	}
	runtimemetrics.Read(samples)
	var sum uint64
	for _, s := range samples {
		sum += s.Value.Uint64()
	}
	return sum
}

// heapLive returns the part of the heap that was in use at the last collection.
func heapLive() uint64 {
	sample := []runtimemetrics.Sample{{Name: "/gc/heap/live:bytes"}}
	runtimemetrics.Read(sample)
	return sample[0].Value.Uint64()
}
