package drift

import (
	"fmt"

	"github.com/ckptsidecar/ckptsidecar/internal/drift/observer"
	"github.com/ckptsidecar/ckptsidecar/internal/drift/phrase"
)

// repeatedError finds that one tool fails with the same error again and again, even with
// other arguments. If something new succeeded in between, the agent may be working
// (change, test, change, test). Then one more is needed.
type repeatedError struct{}

func (repeatedError) rule() string  { return RuleRepeatedError }
func (repeatedError) sees() sign    { return signBad }
func (repeatedError) repeats() bool { return false }

func (repeatedError) count(h *history, window, span int, _ bool) hit {
	newest := h.last(0)
	if !newest.bad || newest.cause == 0 {
		return hit{}
	}
	x, clean := hit{}, hit{}
	news := false
	for i := range min(window, span) {
		e := h.last(i)
		switch {
		case newest.sameFailure(e):
			x.n, x.among = x.n+1, i+1
			if !news {
				clean = x
			}
		case e.told && !e.old && !e.bad:
			news = true
		}
	}
	clean.value = float64(clean.n)
	if x.value = float64(x.n - 1); x.value <= clean.value {
		return clean
	}
	return x
}

// sameFailure reports whether another step of the same tool had the same complaint, in
// another turn.
func (e *entry) sameFailure(other *entry) bool {
	return other.cause == e.cause && other.bad && !other.again && other.tool == e.tool
}

func (repeatedError) making(h *history, need threshold, span int) int {
	return h.signs(min(need.window, span), func(e *entry) bool { return e.bad && e.cause != 0 })
}

func (repeatedError) tell(h *history, x hit) observer.Found {
	newest := h.last(0)
	f := x.found(h, RuleRepeatedError, newest.sameFailure)
	if newest.cause == timedOutNumber {
		f.Message = fmt.Sprintf("%s timed out %s in the last %s.", newest.tool, phrase.Times(x.n), phrase.Count(x.among, "step"))
		f.Advice = fmt.Sprintf("%s has timed out %s. Calling it again does not help: give it more time, run it in the "+
			"background, or request less at once.", newest.tool, phrase.Times(x.n))
		return f
	}
	f.Message = fmt.Sprintf("%s failed %s in the last %s, each time with the same error.",
		newest.tool, phrase.Times(x.n), phrase.Count(x.among, "step"))
	f.Advice = fmt.Sprintf("%s has failed %s with the same error. Other arguments do not help: read the error, fix "+
		"the cause, or do without this tool.", newest.tool, phrase.Times(x.n))
	return f
}
