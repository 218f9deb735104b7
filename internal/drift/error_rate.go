package drift

import ckpt "github.com/ckptsidecar/ckptsidecar"

// errorRate finds many errors among the newest steps, though some succeed in
// between.
type errorRate struct{}

func (errorRate) rule() string  { return RuleErrorRate }
func (errorRate) repeats() bool { return false }

func (errorRate) count(h *history, window, span int, critical bool) hit {
	if !h.last(0).bad {
		return hit{}
	}
	return errorsAmong(h, min(window, span), critical)
}

func (errorRate) making(h *history, need threshold, span int) int {
	return h.signs(min(need.window, span), func(e *entry) bool { return e.bad })
}

func (errorRate) tell(h *history, x hit) ckpt.Found {
	f := x.found(h, RuleErrorRate, func(e *entry) bool { return e.bad })
	f.Message = sentence("%d of the last %s failed, with %s of error.", x.n, count(x.among, "step"), count(x.distinct, "kind"))
	f.Advice = sentence("%d of your last %s failed. Look at what the failures have in common before the next call.", x.n, count(x.among, "step"))
	return f
}
