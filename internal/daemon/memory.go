package daemon

import (
	"context"
	"os"
	"runtime/debug"
	runtimemetrics "runtime/metrics"
	"time"

	"github.com/ckptsidecar/ckptsidecar/internal/periodic"
)

// giver gives memory back to the system after load. The run-time keeps what it
// has had: until the next collection, which may be minutes away where nothing
// happens any more, and some of it for long after that.
type giver struct {
	every    time.Duration
	garbage  int64         // how many bytes of it may be garbage; 0 leaves that to the run-time
	held     func() uint64 // bytes of memory that the heap has from the system
	live     func() uint64 // and of it what was in use when it was last collected
	collect  func(percent int)
	answered func() int64 // requests, ever
	free     func()       // collects, and gives back what is free

	percent int // how much garbage the run-time lets be, of what is in use

	floor uint64 // what was held after the last time
	least uint64 // the least that was ever held after a time
	seen  int64  // answered, when last looked

	skip, wait int // at rest: how many looks to pass over now, and after the next time
}

// What is worth giving back, and how little work is none.
const (
	giveLeast = 16 << 20
	giveEvery = 10 * time.Second
	giveQuiet = 10 // requests in giveEvery
	giveRest  = 30 // looks between two tries at rest, at most
)

// What the run-time lets be garbage: as much as is in use, and more where that is
// little.
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
	g.free() // what the start has left
	g.floor = g.held()
	g.least = g.floor
	g.pace()
	return g
}

// pace says how much garbage may be: collecting costs the same however much there
// is, so that less of it saves processor time.
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

// once gives back where much more is held than after the last time, and than the
// garbage that may be. At rest it also gives back where more is held than the
// least ever: what was in use when it last gave may be free by now. It tries that
// less and less often, because the memory may well be in use.
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

// restDue says whether it is time to try at rest.
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

// heapHeld is the memory that the heap has and has not given back.
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

// heapLive is what of the heap was in use when it was last collected.
func heapLive() uint64 {
	sample := []runtimemetrics.Sample{{Name: "/gc/heap/live:bytes"}}
	runtimemetrics.Read(sample)
	return sample[0].Value.Uint64()
}
