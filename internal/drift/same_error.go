package drift

import (
	"fmt"
	"slices"

	"github.com/ckptsidecar/ckptsidecar/internal/drift/observer"
	"github.com/ckptsidecar/ckptsidecar/internal/drift/phrase"
)

// minTools is how many tools must have the same complaint. maxToolsNamed is how many are
// counted at most.
const (
	minTools      = 2
	maxToolsNamed = 16
)

// oldRun is the number of steps after which a run has shown that single errors are usual
// for it. Then one more error is needed if something succeeded in between.
const oldRun = 20

// sameError finds that different tools have the same complaint. The cause is something
// that they share (a network, a service, a quota, a permission), and another call will
// not help.
type sameError struct{}

func (sameError) rule() string  { return RuleSameError }
func (sameError) sees() sign    { return signBad }
func (sameError) repeats() bool { return false }

func (sameError) count(h *history, window, span int, _ bool) hit {
	newest := h.last(0)
	if !newest.bad || newest.cause == 0 {
		return hit{}
	}
	x := hit{among: min(window, span)}
	good, apart := false, false
	var tools [maxToolsNamed]string
	for i := range x.among {
		e := h.last(i)
		good = good || !e.bad
		if !e.bad || e.again || e.cause != newest.cause {
			continue
		}
		apart = apart || good
		x.n++
		if x.distinct < maxToolsNamed && !slices.Contains(tools[:x.distinct], e.tool) {
			tools[x.distinct] = e.tool
			x.distinct++
		}
	}
	if x.distinct >= minTools {
		x.value = float64(x.n - b2i(apart && h.steps > oldRun))
	}
	return x
}

func (sameError) making(h *history, need threshold, span int) int {
	return h.signs(min(need.window, span), func(e *entry) bool { return e.bad && e.cause != 0 })
}

func (sameError) tell(h *history, x hit) observer.Found {
	newest := h.last(0)
	f := x.found(h, RuleSameError, func(e *entry) bool { return e.bad && e.cause == newest.cause })
	f.Evidence.Observed = fmt.Sprintf("%s, from %s", outOf(x.n, x.among), phrase.Count(x.distinct, "tool"))
	f.Message = fmt.Sprintf("%d of the last %s failed with the same error, from %s: the cause is something that these tools share.", x.n,
		phrase.Count(x.among, "step"), phrase.Count(x.distinct, "tool"))
	f.Advice = fmt.Sprintf("The same error came %s from %s, so another tool will not help. Wait, or do work that needs none "+
		"of them, or say what is not available.", phrase.Times(x.n), phrase.Count(x.distinct, "tool"))
	return f
}
