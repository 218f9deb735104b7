package drift

import (
	"fmt"

	"github.com/ckptsidecar/ckptsidecar/internal/drift/observer"
	"github.com/ckptsidecar/ckptsidecar/internal/drift/phrase"
)

// churn finds that a file gets the same content again and again: written back and forth,
// or reverted to the committed version after each attempt.
type churn struct{}

func (churn) rule() string  { return RuleChurn }
func (churn) sees() sign    { return signSets }
func (churn) repeats() bool { return true }

func (churn) count(h *history, window, span int, _ bool) (x hit) {
	newest := h.last(0)
	if newest.effect == 0 || newest.bad {
		return x
	}
	for i := range min(window, span) {
		if newest.sameEffect(h.last(i)) {
			x.n, x.among = x.n+1, i+1
		}
	}
	x.value = float64(x.n)
	return x
}

func (e *entry) sameEffect(other *entry) bool { return other.effect == e.effect && !other.bad }

func (churn) making(h *history, need threshold, span int) int {
	newest := h.last(0)
	if newest.effect == 0 {
		return 0
	}
	return h.signs(min(need.window, span), newest.sameEffect)
}

func (churn) tell(h *history, x hit) observer.Found {
	newest := h.last(0)
	f := x.found(h, RuleChurn, newest.sameEffect)
	f.Message = fmt.Sprintf("%s set the same file back to the same content %s in the last %s.", newest.tool, phrase.Times(x.n),
		phrase.Count(x.among, "step"))
	f.Advice = fmt.Sprintf("You have set the same file back %s. Each attempt ended where it began: state what the attempts had in "+
		"common, and plan another approach before you edit again.", phrase.Times(x.n))
	return f
}
