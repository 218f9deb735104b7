package drift

import (
	"fmt"
	"slices"
	"strings"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/drift/observer"
	"github.com/ckptsidecar/ckptsidecar/internal/drift/phrase"
)

const (
	maxEdges   = 4096
	edgeRecent = 20 // the number of edges after which a finding is over
)

// edges are what a loop that is a state machine does.
type edges struct {
	state   string // the state that it is in
	taken   map[string]int64
	counts  map[string]int64 // as the loop tells them
	told    map[string]int64 // by edge: the count that was reported last
	quiet   int64            // the number of edges since one that was taken too often
	entered bool
}

// pointerToEdges leads to the counts in the state of a loop.
const pointerToEdges = "/edge_revisit_counts/"

// Enter takes in that the loop enters a state, "" for none, and the counts that it tells.
func (r *run) Enter(now time.Time, state string, counts map[string]int64) []observer.Found {
	if r.set.off {
		return nil
	}
	r.now = later(r.now, now)
	var found []observer.Found
	e := &r.edges
	if state != "" {
		if e.entered {
			edge := e.state + "->" + state
			if e.taken == nil {
				e.taken = map[string]int64{}
			}
			if len(e.taken) < maxEdges || e.taken[edge] > 0 {
				e.taken[edge]++
			}
			e.quiet++
			found = r.revisited(found, edge, e.taken[edge])
		}
		e.state, e.entered = state, true
	}
	return r.about(r.countedEdges(found, counts))
}

// countedEdges checks the counts that the loop tells.
func (r *run) countedEdges(found []observer.Found, counts map[string]int64) []observer.Found {
	if counts == nil {
		return found
	}
	r.edges.counts = counts
	for _, edge := range sortedKeys(counts, len(counts))[:min(len(counts), maxEdges)] {
		found = r.revisited(found, edge, counts[edge])
	}
	return found
}

// edgesIn checks the counts in a state.
func (r *run) edgesIn(found []observer.Found, p *observer.StatePrint) []observer.Found {
	var counts map[string]int64
	for pointer, n := range p.Counters {
		if edge, is := strings.CutPrefix(pointer, pointerToEdges); is {
			if counts == nil {
				counts = map[string]int64{}
			}
			counts[edge] = int64(n)
		}
	}
	return r.countedEdges(found, counts)
}

// revisited reports an edge at the threshold, at twice the threshold, and so on.
func (r *run) revisited(found []observer.Found, edge string, n int64) []observer.Found {
	set := r.set.rules[RuleEdgeRevisits]
	if set.off || float64(n) < set.warn.value {
		return found
	}
	r.edges.quiet = 0
	if told := r.edges.told[edge]; told > 0 && n >= told && n < 2*told {
		return found
	}
	if r.edges.told == nil {
		r.edges.told = map[string]int64{}
	}
	r.edges.told[edge] = n
	return append(found, observer.Found{
		Rule: RuleEdgeRevisits, Severity: set.one, SinceSeq: r.seq,
		Message: fmt.Sprintf("The loop took the edge %s %s.", phrase.Cut(edge), phrase.Times(int(n))),
		Advice: fmt.Sprintf("You have gone from %s %s. Leave this circle: say what it has not solved, and choose another way.",
			strings.ReplaceAll(phrase.Cut(edge), "->", " to "), phrase.Times(int(n))),
		Evidence: ckpt.Evidence{Threshold: phrase.Times(int(set.warn.value)), Observed: phrase.Times(int(n)), Tool: phrase.Cut(edge)},
	})
}

// isCalm reports whether the loop has left the edges that it took too often. Then it may
// be reported again.
func (r *run) isCalm(set setting) bool {
	over := func(n int64) bool { return float64(n) >= set.warn.value }
	for _, n := range r.edges.counts {
		if over(n) {
			return false
		}
	}
	if r.edges.entered && r.edges.quiet < int64(set.over) && slices.ContainsFunc(sortedKeys(r.edges.taken, len(r.edges.taken)),
		func(edge string) bool { return over(r.edges.taken[edge]) }) {
		return false
	}
	clear(r.edges.taken)
	clear(r.edges.told)
	return true
}
