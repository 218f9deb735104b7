package drift

import ckpt "github.com/ckptsidecar/ckptsidecar"

// minStaleKinds is how many different pairs a visit to old steps has at least;
// fewer are a repeat or a cycle, which find them sooner.
const minStaleKinds = 4

// stale finds that most of the newest pairs were all seen before in the run:
// the agent visits old steps, in whatever order.
type stale struct{}

func (stale) rule() string  { return RuleStale }
func (stale) repeats() bool { return true }

func (stale) look(h *history, set setting, span int) hit {
	if !h.last(0).told || !h.last(0).old {
		return hit{}
	}
	pairs := h.pairs(span)
	return tiers(set, func(need threshold, _ bool) (hit, bool) {
		if h.totalPairs <= int64(need.window) {
			return hit{}, false // still warming up
		}
		n, kinds := 0, 0
		for i := range min(need.window, pairs) {
			if e := h.pairBack(i); e.old {
				n++
				kinds += b2i(kinds < minStaleKinds && firstOfKind(h, i))
			}
		}
		return hit{n: n, among: h.reach(min(need.window, pairs)), distinct: kinds},
			n >= int(need.value) && kinds >= min(minStaleKinds, int(need.value))
	})
}

// firstOfKind says whether none of the pairs after the i-th newest is the same.
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

func (s stale) tell(h *history, x hit) ckpt.Found {
	f := x.found(h, RuleStale, func(e *entry) bool { return e.told && e.old })
	f.Message = sentence("%d of the last %s had all been made before in this run, with the same results.", x.n, count(x.need.window, "step"))
	f.Advice = sentence("%d of your last %s only repeat what you did earlier in this run. Write down what you know, and choose a step that is new.", x.n, count(x.need.window, "step"))
	return f
}
