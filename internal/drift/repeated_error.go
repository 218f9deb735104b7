package drift

import ckpt "github.com/ckptsidecar/ckptsidecar"

// repeatedError finds that one tool fails with the same error again and again,
// though its arguments differ. Where something new succeeded in between, the agent
// may be at work (change, test, change, test): then one time more is needed.
type repeatedError struct{}

func (repeatedError) rule() string  { return RuleRepeatedError }
func (repeatedError) repeats() bool { return false }

func (repeatedError) look(h *history, set setting, span int) hit {
	newest := h.last(0)
	if !newest.bad || newest.cause == 0 {
		return hit{}
	}
	if !repeatsItself(h, newest, set, span) {
		return hit{}
	}
	return tiers(set, func(need threshold, _ bool) (hit, bool) {
		x, news := hit{}, false
		for i := range min(need.window, span) {
			e := h.last(i)
			switch {
			case newest.sameFailure(e):
				x.n, x.among = x.n+1, i+1
				if x.n == int(need.value) && !news || x.n > int(need.value) {
					return x, true
				}
			case e.told && !e.old && !e.bad:
				news = true
			}
		}
		return x, false
	})
}

// repeatsItself says whether there are as many of the same failure as the lower
// of the tiers needs. Most failures are alone.
func repeatsItself(h *history, newest *entry, set setting, span int) bool {
	need, n := set.critical.value, 0
	if set.warn.value > 0 {
		need = set.warn.value
	}
	for i := range min(max(set.warn.window, set.critical.window), span) {
		if newest.sameFailure(h.last(i)) {
			if n++; n >= int(need) {
				return true
			}
		}
	}
	return false
}

// sameFailure says whether another step of the same tool complained of the same,
// in another turn.
func (e *entry) sameFailure(other *entry) bool {
	return other.cause == e.cause && other.bad && !other.again && other.tool == e.tool
}

func (repeatedError) making(h *history, need threshold, span int) int {
	return h.signs(min(need.window, span), func(e *entry) bool { return e.bad && e.cause != 0 })
}

func (repeatedError) tell(h *history, x hit) ckpt.Found {
	newest := h.last(0)
	f := x.found(h, RuleRepeatedError, newest.sameFailure)
	f.Message = sentence("%s failed %s in the last %s, each time with the same error.", newest.tool, times(x.n), count(x.among, "step"))
	f.Advice = sentence("%s has failed %s with the same error. Other arguments do not help: read what it says, mend that, or do without.", newest.tool, times(x.n))
	return f
}
