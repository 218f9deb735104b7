package drift

import (
	"fmt"

	"github.com/ckptsidecar/ckptsidecar/internal/drift/observer"
	"github.com/ckptsidecar/ckptsidecar/internal/drift/phrase"
)

// repeatedResult finds that one tool gives the same result again and again, in steps whose
// arguments were not recorded. The calls may differ, so the rule needs twice as many steps
// as repeat, and never goes above warn.
type repeatedResult struct{}

func (repeatedResult) rule() string                        { return RuleRepeatedResult }
func (repeatedResult) sees() sign                          { return signMute }
func (repeatedResult) repeats() bool                       { return true }
func (repeatedResult) making(*history, threshold, int) int { return 0 }

func (repeatedResult) count(h *history, window, span int, _ bool) (x hit) {
	newest := h.last(0)
	for i := range min(window, span) {
		if newest.sameAnswer(h.last(i)) {
			x.n, x.among = x.n+1, i+1
		}
	}
	x.value = float64(x.n)
	return x
}

// sameAnswer reports whether both steps are calls of one tool without known arguments, with
// the same result.
func (e *entry) sameAnswer(other *entry) bool {
	return e.sign()&other.sign()&signMute != 0 && other.pair == e.pair
}

func (repeatedResult) tell(h *history, x hit) observer.Found {
	newest := h.last(0)
	f := x.found(h, RuleRepeatedResult, newest.sameAnswer)
	f.Message = fmt.Sprintf("%s returned the same result %s in the last %s; the arguments of these calls were not recorded.",
		newest.tool, phrase.Times(x.n), phrase.Count(x.among, "step"))
	f.Advice = fmt.Sprintf("%s has returned the same result %s. If the calls were equal, use what the result says, or do something else. "+
		"If the calls differed, record their arguments.", newest.tool, phrase.Times(x.n))
	return f
}
