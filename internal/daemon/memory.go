package daemon

import (
	"context"
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
	held     func() uint64 // bytes of memory that the heap has from the system
	answered func() int64  // requests, ever
	free     func()        // collects, and gives back what is free

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

func newGiver(answered func() int64) *giver {
	g := &giver{every: giveEvery, held: heapHeld, answered: answered, free: debug.FreeOSMemory}
	g.floor = g.held()
	return g
}

func (g *giver) run(ctx context.Context) {
	_ = periodic.Every(ctx, g.every, func(context.Context) error { g.once(); return nil })
}

// once gives back where much more is held than after the last time (twice as
// much is what the collector needs under load), or where the work has ended.
func (g *giver) once() (gave bool) {
	held, answered := g.held(), g.answered()
	quiet := answered-g.seen < giveQuiet
	g.seen = answered
	g.floor = min(g.floor, held)
	ended := quiet && g.busy && held > g.floor+giveLeast
	if g.busy = !quiet; !ended && held <= 2*g.floor+giveLeast {
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
