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

	ended     int64 // the number of steps, including ignored ones
	seq       int64 // the newest checkpoint
	startedAt time.Time
	now       time.Time // the time of the newest event

	steps  *history
	grew   int64 // the number of counted steps when declared progress last grew
	floors map[string]int64
	spells map[string]*spell

	blind blind
	edges edges
	clear []string // the rules of the user, and of the schema, that were tried last and did not hold
	sound int64    // the number of steps since a result was broken

	levels map[string]float64 // of the newest step, by rule; nil if no caller asks for them

	progress         progress
	spent            spent
	states           states
	routine, refresh due
	goal             goal
}

// setLoop is a loop detector with its setting.
type setLoop struct {
	loop
	asks sign // what the loop sees
	set  setting
}

// span returns how many of the newest steps a detector may look at. Dismissed steps are
// excluded. For rules about repetition, the steps before progress last grew are excluded
// too.
func (r *run) span(l loop) int {
	floor := r.floors[l.rule()]
	if l.repeats() {
		floor = max(floor, r.grew)
	}
	return int(min(int64(r.steps.len()), r.steps.steps-floor))
}

// tells returns whether to report a rule now. It prevents a rule from reporting the same
// thing again and again.
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
