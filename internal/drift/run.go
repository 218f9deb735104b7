package drift

import (
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

// run watches one run.
type run struct {
	set    settings
	loops  []setLoop
	looks  []stateRule
	gauges []*gauge

	ended     int64 // steps, ignored ones too
	seq       int64 // the newest checkpoint
	startedAt time.Time
	now       time.Time // of the newest event

	steps  *history
	grew   int64 // how many steps were counted when declared progress last grew
	floors map[string]int64
	spells map[string]*spell

	levels map[string]float64 // of the newest step, by rule; nil where nobody asks

	progress         progress
	spent            spent
	states           states
	routine, refresh due
	goal             goal
}

// setLoop is a loop detector with what holds for it.
type setLoop struct {
	loop
	asks sign // what the loop sees
	set  setting
}

// span is how many of the newest steps a detector may look at. Dismissed steps
// are excluded. For repetition, so are the steps before progress grew.
func (r *run) span(l loop) int {
	floor := r.floors[l.rule()]
	if l.repeats() {
		floor = max(floor, r.grew)
	}
	return int(min(int64(r.steps.len()), r.steps.steps-floor))
}

// tells says whether to report a rule now. It keeps a rule from reporting the
// same thing again and again.
func (r *run) tells(rule string, severity ckpt.Severity, now, cooldown int64) bool {
	s := r.spells[rule]
	if s == nil {
		s = &spell{}
		r.spells[rule] = s
	}
	return s.tells(severity, now, cooldown)
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
