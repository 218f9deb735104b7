package spans

import (
	"sync"
	"time"

	"github.com/ckptsidecar/ckptsidecar/internal/otlp/observed"
)

// The bounds of what is kept in memory about traces.
const (
	mostTraces = 20_000
	mostLinks  = 4096 // of one trace
	mostTurns  = 64
	forgetIdle = 15 * time.Minute
)

type traceKey struct{ owner, trace string }

// link is what is known of a span in a trace: what it lies below.
type link struct {
	parent string
	run    string // the conversation that it names
	agent  bool   // it is a span of an agent
	model  bool   // it is a span of a model, and says how many tokens the model took
}

// turn is an answer of a model.
type turn struct {
	span, below string // below: the span of its agent
	ended       int64
}

// trace is what is kept in memory of a trace.
type trace struct {
	first, last time.Time // when the first and the last of the waiting spans came
	waiting     int
	root        bool           // the root has come
	early       *observed.Span // the root, if it is only structure and came before the spans below it
	rootAgent   string
	seen        time.Time
	links       map[string]link
	turns       []turn
}

// traces are the traces that were seen lately.
type traces struct {
	mu     sync.Mutex
	of     map[traceKey]*trace
	forgot time.Time // when some were last dropped because there were too many
}

// hear notes what a batch says of its traces. kept is how many spans of each trace wait now.
func (t *traces) hear(owner string, spans []observed.Span, kept map[string]int, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i := range spans {
		span := &spans[i]
		at := t.get(traceKey{owner, span.Trace}, now)
		if span.Parent == "" {
			at.root = true
			if span.Kind == observed.Structure {
				early := *span
				early.Args, early.Result = nil, nil // nothing needs them, and they can be large
				at.early = &early
			}
			if span.RootAgent != "" {
				at.rootAgent = span.RootAgent
			}
		}
		if len(at.links) < mostLinks {
			at.links[span.ID] = link{span.Parent, span.Run, span.Kind == observed.Agent, span.Kind == observed.Inference && span.InputTokens != nil}
		}
	}
	for id, n := range kept {
		at := t.get(traceKey{owner, id}, now)
		at.early = nil
		if at.waiting == 0 {
			at.first = now
		}
		at.waiting += n
		at.last = now
	}
}

// earlyRoots are the roots that came before any span of their traces that is stored.
func (t *traces) earlyRoots(owner string, of map[string]bool) (roots []observed.Span) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for id := range of {
		if at := t.of[traceKey{owner, id}]; at != nil && at.early != nil {
			roots = append(roots, *at.early)
		}
	}
	return roots
}

// get finds a trace or makes it. If there are too many, it keeps only those with waiting spans.
func (t *traces) get(key traceKey, now time.Time) *trace {
	at := t.of[key]
	if at == nil {
		if len(t.of) >= mostTraces && now.Sub(t.forgot) >= time.Second {
			t.forget(now, 0)
			t.forgot = now
		}
		at = &trace{links: map[string]link{}}
		t.of[key] = at
	}
	at.seen = now
	return at
}

// forget drops traces without waiting spans that have been idle for a while.
func (t *traces) forget(now time.Time, idle time.Duration) {
	for key, at := range t.of {
		if at.waiting == 0 && now.Sub(at.seen) >= idle {
			delete(t.of, key)
		}
	}
}

// due are the traces whose spans have waited long enough, by owner. Those of the owner of are due at
// any time.
func (t *traces) due(now time.Time, of string) map[string][]string {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.forget(now, forgetIdle)
	due := map[string][]string{}
	for key, at := range t.of {
		switch {
		case at.waiting == 0:
		case key.owner == of, at.waiting >= waiting, now.Sub(at.first) >= waitMost, at.root && now.Sub(at.last) >= waitQuiet:
			due[key.owner] = append(due[key.owner], key.trace)
		}
	}
	return due
}

// take returns what is known of a trace, and notes that no span of it waits any more. again puts it
// back if it could not be settled.
func (t *traces) take(owner, id string) trace {
	t.mu.Lock()
	defer t.mu.Unlock()
	at := t.of[traceKey{owner, id}]
	if at == nil {
		return trace{}
	}
	known := *at
	known.links = make(map[string]link, len(at.links))
	for span, l := range at.links {
		known.links[span] = l
	}
	known.turns = append([]turn(nil), at.turns...)
	at.waiting = 0
	return known
}

// again makes a trace wait again because it could not be settled.
func (t *traces) again(owner, id string, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	at := t.get(traceKey{owner, id}, now)
	at.waiting, at.first, at.last = max(1, at.waiting), now, now
}

// remember notes the turns of a trace for spans that come later.
func (t *traces) remember(owner, id string, turns []turn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if at := t.of[traceKey{owner, id}]; at != nil {
		at.turns = append(at.turns, turns...)
		at.turns = at.turns[max(0, len(at.turns)-mostTurns):]
	}
}
