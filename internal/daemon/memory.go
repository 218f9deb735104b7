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
	seen  int64  // answered, when last looked
	busy  bool   // there was work since the last time
}

// What is worth giving back, and how little work is none.
const (
	giveLeast = 16 << 20
	giveEvery = 10 * time.Second
	giveQuiet = 10 // requests in giveEvery
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
// garbage that may be, or where the work has ended.
func (g *giver) once() (gave bool) {
	defer g.pace()
	held, answered := g.held(), g.answered()
	quiet := answered-g.seen < giveQuiet
	g.seen = answered
	g.floor = min(g.floor, held)
	ended := quiet && g.busy && held > g.floor+giveLeast
	if g.busy = !quiet; !ended && held <= g.floor*uint64(100+g.percent)/100+giveLeast {
		return false
	}
	g.free()
	g.floor = g.held()
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
