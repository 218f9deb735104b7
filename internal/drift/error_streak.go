package drift

import (
	"fmt"
	"slices"

	"github.com/ckptsidecar/ckptsidecar/internal/drift/observer"
	"github.com/ckptsidecar/ckptsidecar/internal/drift/phrase"
)

// maxStreak is how far back a streak of errors is counted.
const maxStreak = 256

// errorStreak finds errors in a row.
type errorStreak struct{}

func (errorStreak) rule() string  { return RuleErrorStreak }
func (errorStreak) sees() sign    { return signBad }
func (errorStreak) repeats() bool { return false }

func (errorStreak) count(h *history, _, span int, critical bool) hit {
	if !h.last(0).bad {
		return hit{}
	}
	row := 0
	for row < min(span, maxStreak) && h.last(row).bad {
		row++
	}
	x := errorsAmong(h, row, critical)
	if !critical && row >= 2 && h.last(0).insists(h.last(1)) {
		x.value++
	}
	return x
}

// retryPause is the time in milliseconds after which the same call is no mere repetition: the agent has waited.
const retryPause = 10_000

// insists reports whether a step made the call of the step before again at once, and got the same complaint as a
// result. A program that failed is no such complaint: it may be called again after a change.
func (e *entry) insists(before *entry) bool {
	return e.told && before.told && e.pair == before.pair && !e.failed && !e.again && e.began-before.ended < retryPause
}

// maxKinds is the maximum number of kinds of errors to distinguish.
const maxKinds = 32

// errorsAmong counts the errors among the newest steps, and their kinds. Different errors
// are answers to different attempts, so each further kind subtracts half an error. If
// said is true, errors without any text do not count. An error that came twice in one
// turn counts once.
func errorsAmong(h *history, among int, said bool) hit {
	x := hit{among: among}
	var kinds [maxKinds]uint64
	for i := range among {
		e := h.last(i)
		if !e.bad || e.again || said && !e.said {
			continue
		}
		x.n++
		if x.distinct < maxKinds && !slices.Contains(kinds[:x.distinct], e.cause) {
			kinds[x.distinct] = e.cause
			x.distinct++
		}
	}
	x.value = float64(x.n) - float64(max(0, x.distinct-1))/2
	return x
}

func (errorStreak) making(h *history, _ threshold, span int) int {
	row := 0
	for row < min(span, maxStreak) && h.last(row).bad {
		row++
	}
	if row < 2 {
		return 0
	}
	return row
}

func (errorStreak) tell(h *history, x hit) observer.Found {
	f := x.found(h, RuleErrorStreak, func(e *entry) bool { return e.bad })
	f.Evidence.Threshold = fmt.Sprintf("%d in a row", int(x.need.value))
	f.Evidence.Observed = fmt.Sprintf("%d in a row, %s", x.n, phrase.Count(x.distinct, "kind"))
	if newest := h.last(0); float64(x.n) < x.need.value {
		f.Message = fmt.Sprintf("The last %s were the same call to %s, and each reported the same problem.", phrase.Count(x.n, "step"), newest.tool)
		f.Advice = fmt.Sprintf("Your last %s made the same call to %s, and it reported the same problem each time. Wait before you try again, "+
			"or do something else.", phrase.Count(x.n, "step"), newest.tool)
		return f
	}
	f.Message = fmt.Sprintf("The last %s all failed, with %s of error.", phrase.Count(x.n, "step"), phrase.Count(x.distinct, "kind"))
	f.Advice = fmt.Sprintf("Your last %s all failed. Stop calling tools, find the cause in the newest error, and change your "+
		"approach or ask for help.", phrase.Count(x.n, "step"))
	return f
}
