package drift

import ckpt "github.com/ckptsidecar/ckptsidecar"

// loop is a detector over the newest steps. look is called at every step, and
// neither keeps anything nor allocates; tell only where the finding is made.
type loop interface {
	rule() string
	// look says what holds now. It sees the newest span steps only: what came
	// before was dismissed, or cleared by progress.
	look(h *history, set setting, span int) hit
	tell(h *history, x hit) ckpt.Found
	// making is how many of the newest steps hold what may yet become critical,
	// 0 where there are not two signs of it.
	making(h *history, need threshold, span int) int
	// repeats says whether growth of declared progress clears the rule.
	repeats() bool
}

// hit is what a detector saw. Without a severity it saw nothing.
type hit struct {
	severity ckpt.Severity
	need     threshold // of the tier
	n        int       // what was counted
	among    int       // in so many of the newest steps
	distinct int       // different errors, tools or steps, as the rule says
	size     int       // of the block of a cycle
}

func loops() []loop {
	return []loop{repeat{}, cycle{}, stale{}, errorStreak{}, errorRate{}, sameError{}, repeatedError{}, churn{}}
}

// tiers tries the critical tier first, then warn.
func tiers(set setting, try func(need threshold, critical bool) (hit, bool)) hit {
	if set.critical.value > 0 {
		if x, ok := try(set.critical, true); ok {
			x.severity, x.need = set.capped(ckpt.SeverityCritical), set.critical
			return x
		}
	}
	if set.warn.value > 0 {
		if x, ok := try(set.warn, false); ok {
			x.severity, x.need = set.capped(ckpt.SeverityWarn), set.warn
			return x
		}
	}
	return hit{}
}

// found is the part that all findings of loops have.
func (x hit) found(h *history, rule string, match func(*entry) bool) ckpt.Found {
	oldest := h.last(x.among - 1)
	return ckpt.Found{
		Rule: rule, Severity: x.severity, SinceSeq: oldest.afterSeq,
		Evidence: ckpt.Evidence{
			Threshold: x.need.String(), Observed: outOf(x.n, x.among), Window: x.need.window,
			Tool: h.last(0).tool, Steps: h.keys(x.among, match),
		},
	}
}

// signs is how many of the newest n steps reach back to the first that matches,
// 0 where fewer than two do.
func (h *history) signs(n int, match func(*entry) bool) int {
	found, oldest := 0, 0
	for i := range n {
		if match(h.last(i)) {
			found, oldest = found+1, i+1
		}
	}
	if found < 2 {
		return 0
	}
	return oldest
}
