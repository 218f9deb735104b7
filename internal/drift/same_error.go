package drift

import ckpt "github.com/ckptsidecar/ckptsidecar"

// minTools is how many tools must complain of the same.
const minTools = 2

// sameError finds that different tools complain of the same: what they share,
// a network, a service, a quota, a permission, is at fault, and another call
// will not help.
type sameError struct{}

func (sameError) rule() string  { return RuleSameError }
func (sameError) repeats() bool { return false }

func (sameError) look(h *history, set setting, span int) hit {
	newest := h.last(0)
	if !newest.bad || newest.cause == 0 {
		return hit{}
	}
	return tiers(set, func(need threshold, _ bool) (hit, bool) {
		x := hit{among: min(need.window, span)}
		for i := range x.among {
			if e := h.last(i); e.bad && e.cause == newest.cause {
				x.n++
				x.distinct += b2i(firstTool(h, i))
			}
		}
		return x, x.n >= int(need.value) && x.distinct >= minTools
	})
}

// firstTool says whether no step after the i-th newest had its complaint with
// its tool.
func firstTool(h *history, i int) bool {
	e := h.last(i)
	for j := range i {
		if after := h.last(j); after.bad && after.cause == e.cause && after.tool == e.tool {
			return false
		}
	}
	return true
}

func (sameError) making(h *history, need threshold, span int) int {
	return h.signs(min(need.window, span), func(e *entry) bool { return e.bad && e.cause != 0 })
}

func (sameError) tell(h *history, x hit) ckpt.Found {
	newest := h.last(0)
	f := x.found(h, RuleSameError, func(e *entry) bool { return e.bad && e.cause == newest.cause })
	f.Evidence.Observed = sentence("%s, from %s", outOf(x.n, x.among), count(x.distinct, "tool"))
	f.Message = sentence("%d of the last %s failed with the same error, from %s: what the tools share is at fault.", x.n, count(x.among, "step"), count(x.distinct, "tool"))
	f.Advice = sentence("The same error came %s from %s, so another tool will not help. Wait, or do what needs none of them, or say what is not available.", times(x.n), count(x.distinct, "tool"))
	return f
}
