package drift

import (
	"fmt"

	"github.com/ckptsidecar/ckptsidecar/internal/drift/observer"
	"github.com/ckptsidecar/ckptsidecar/internal/drift/phrase"
)

// repeat finds one pair several times among the newest steps. If something new came in
// between, the agent may be working (change, test, change, test). Then warn needs one
// more, and critical does not fire.
type repeat struct{}

func (repeat) rule() string  { return RuleRepeat }
func (repeat) sees() sign    { return signOld }
func (repeat) repeats() bool { return true }

func (repeat) count(h *history, window, span int, critical bool) hit {
	newest := h.last(0)
	if !newest.told || !newest.old {
		return hit{}
	}
	x, clean := hit{}, hit{}
	news := false
	for i := range min(window, span) {
		e := h.last(i)
		switch {
		case e.told && e.pair == newest.pair:
			x.n, x.among = x.n+1, i+1
			if !news {
				clean = x
			}
		case e.told && !e.old:
			news = true
		}
	}
	clean.value = float64(clean.n)
	if x.value = float64(x.n - 1); critical || x.value <= clean.value {
		return clean
	}
	return x
}

func (repeat) making(h *history, need threshold, span int) int {
	n := min(need.window, span)
	first, oldest := h.steps-int64(n), int64(-1)
	for i := range n {
		if e := h.last(i); e.told && e.before >= first {
			oldest = e.before
		}
	}
	if oldest < 0 {
		return 0
	}
	return int(h.steps - oldest)
}

func (r repeat) tell(h *history, x hit) observer.Found {
	newest := h.last(0)
	f := x.found(h, RuleRepeat, func(e *entry) bool { return e.told && e.pair == newest.pair })
	f.Message = fmt.Sprintf("%s was called %s with the same arguments in the last %s and returned the same result each time.",
		newest.tool, phrase.Times(x.n), phrase.Count(x.among, "step"))
	f.Advice = fmt.Sprintf("You have made the same call to %s %s and got the same result; it will not change. Use what "+
		"it said, or do something else.", newest.tool, phrase.Times(x.n))
	return f
}
