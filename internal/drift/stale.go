package drift

import (
	"fmt"

	"github.com/ckptsidecar/ckptsidecar/internal/drift/observer"
	"github.com/ckptsidecar/ckptsidecar/internal/drift/phrase"
)

// minStaleKinds is the least number of different pairs in a return to old steps. Fewer
// pairs are a repeat or a cycle, whose rules find them sooner.
const minStaleKinds = 4

// stale finds that most of the newest pairs were seen before in the run: the agent
// repeats old steps, in any order.
type stale struct{}

func (stale) rule() string  { return RuleStale }
func (stale) sees() sign    { return signOld }
func (stale) repeats() bool { return true }

func (stale) count(h *history, window, span int, _ bool) (x hit) {
	if !h.last(0).told || !h.last(0).old || h.totalPairs <= int64(window) { // still warming up
		return x
	}
	pairs := min(window, h.pairs(span))
	n, kinds := 0, 0
	for i := range pairs {
		if e := h.pairBack(i); e.old {
			n++
			kinds += b2i(kinds < minStaleKinds && firstOfKind(h, i))
		}
	}
	x = hit{value: float64(n), n: n, among: h.reach(pairs), distinct: kinds}
	if kinds < minStaleKinds { // a policy that asks for fewer old steps needs only as many kinds
		x.value = float64(min(n, kinds))
	}
	return x
}

// firstOfKind reports whether none of the newer pairs equals the i-th newest one.
func firstOfKind(h *history, i int) bool {
	for j := range i {
		if h.pairBack(j).pair == h.pairBack(i).pair {
			return false
		}
	}
	return true
}

func (stale) making(h *history, need threshold, span int) int {
	pairs := min(need.window, h.pairs(span))
	if pairs == 0 {
		return 0
	}
	return h.signs(h.reach(pairs), func(e *entry) bool { return e.told && e.old })
}

func (s stale) tell(h *history, x hit) observer.Found {
	f := x.found(h, RuleStale, func(e *entry) bool { return e.told && e.old })
	f.Message = fmt.Sprintf("%d of the last %s had all been made before in this run, with the same results.",
		x.n, phrase.Count(x.need.window, "step"))
	f.Advice = fmt.Sprintf("%d of your last %s only repeat what you did earlier in this run. Write down what you know, "+
		"and choose a step that is new.", x.n, phrase.Count(x.need.window, "step"))
	return f
}
