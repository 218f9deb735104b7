package drift

import (
	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/drift/observer"
)

// loop is a detector over the newest steps. count is called at every step. It keeps
// nothing and does not allocate. tell is called only for a finding.
type loop interface {
	rule() string
	// sees returns what the newest step must be so that the rule can fire. At any other
	// step, nothing needs to be counted.
	sees() sign
	// count counts, among the newest window steps, what the tier needs. It sees only the
	// newest span steps: earlier steps were dismissed, or cleared by progress. critical
	// says which tier is asked for.
	count(h *history, window, span int, critical bool) hit
	tell(h *history, x hit) observer.Found
	// making returns how many of the newest steps contain evidence that can still become
	// critical. It is 0 if there are fewer than two signs of it.
	making(h *history, need threshold, span int) int
	// quiet reports whether the newest n steps, which are enough to end a finding, have no
	// sign of the rule.
	quiet(h *history, n int) bool
	// repeats reports whether growth of declared progress clears the rule.
	repeats() bool
}

// sign is a set of properties of the newest step that detectors ask for.
type sign uint8

const (
	signOld  sign = 1 << iota // its pair was seen before in the run
	signBad                   // it failed, or complained and brought nothing new
	signMute                  // it has a result, and its arguments were not recorded
	signSets                  // it set something that is known, and did not fail
)

// sign returns the properties of a step.
func (e *entry) sign() (s sign) {
	if e.told && e.old {
		s |= signOld
	}
	if e.mute && !e.bad {
		s |= signMute
	}
	if e.bad {
		s |= signBad
	} else if e.effect != 0 {
		s |= signSets
	}
	return s
}

// hit is what a detector saw. It has no severity if no tier was reached.
type hit struct {
	severity ckpt.Severity
	need     threshold // of the tier
	value    float64   // what is compared with what the tier needs
	n        int       // what was counted
	among    int       // among this many of the newest steps
	distinct int       // the number of different errors, tools or steps, depending on the rule
	size     int       // of the block of a cycle
}

// look checks which tier is reached now: the critical tier first, then warn.
func look(l loop, h *history, set setting, span int) hit {
	if set.critical.value > 0 {
		if x := l.count(h, set.critical.window, span, true); x.value >= set.critical.value {
			x.severity, x.need = set.capped(ckpt.SeverityCritical), set.critical
			return x
		}
	}
	if set.warn.value > 0 {
		if x := l.count(h, set.warn.window, span, false); x.value >= set.warn.value {
			x.severity, x.need = set.capped(ckpt.SeverityWarn), set.warn
			return x
		}
	}
	return hit{}
}

// level returns the reached fraction of what a tier needs: 1 if a tier is reached.
func level(l loop, h *history, set setting, span int) (most float64) {
	for critical, need := range map[bool]threshold{false: set.warn, true: set.critical} {
		if need.value > 0 {
			most = max(most, l.count(h, need.window, span, critical).value/need.value)
		}
	}
	return most
}

// found returns the part that all findings of loops have.
func (x hit) found(h *history, rule string, match func(*entry) bool) observer.Found {
	oldest := h.last(x.among - 1)
	return observer.Found{
		Rule: rule, Severity: x.severity, SinceSeq: oldest.afterSeq,
		Evidence: ckpt.Evidence{
			Threshold: x.need.String(), Observed: outOf(x.n, x.among), Window: x.need.window,
			Tool: h.last(0).tool, Steps: h.keys(x.among, match),
		},
	}
}

// signs returns how many of the newest n steps it takes to include the oldest match. It
// is 0 for fewer than two matches.
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
