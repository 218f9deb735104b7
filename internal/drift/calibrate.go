package drift

import (
	"fmt"
	"math"
	"slices"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/drift/observer"
)

// This is split conformal prediction. The score of a run is the largest multiple of a
// threshold that any loop rule reached in it. Take the scores of n runs that ended well,
// and of one more run. If the agent did not change, each of the n+1 scores is equally
// likely to be the largest. Therefore the new score is above the ceil((n+1)(1-a))-th
// smallest of the n scores with a probability of at most a, whatever the distribution is.

// Score returns the largest level of a loop rule in a run.
func (w *watch) Score(p *ckpt.Policy, r *observer.RecordedRun) (score float64) {
	plain := evaluated(p)
	judged := newRun(&plain, observer.RunPast{StartedAt: r.StartedAt, Goal: r.Goal})
	if judged.set.off {
		return 0
	}
	judged.levels = map[string]float64{}
	for i := range r.Steps {
		if slices.Contains(r.Begins, i) {
			judged = newRun(&plain, observer.RunPast{StartedAt: r.StartedAt, Goal: r.Goal})
			judged.levels = map[string]float64{}
		}
		clear(judged.levels)
		judged.Step(r.Steps[i])
		for _, x := range judged.levels {
			score = max(score, x)
		}
	}
	return score
}

// Calibrate computes the factor for a policy from the scores of good runs.
func (w *watch) Calibrate(p *ckpt.Policy, scores []float64) ckpt.Calibration {
	c := ckpt.Calibration{Asked: p.FalseAlarms, Runs: len(scores), Needs: p.FalseAlarms.Needs()}
	if c.Asked <= 0 || c.Runs < c.Needs {
		return c
	}
	sorted := slices.Sorted(slices.Values(scores))
	place := int(math.Ceil(float64(c.Runs+1)*(1-float64(c.Asked)) - 1e-9))
	c.Factor = sorted[min(max(place, 1), c.Runs)-1]
	if c.Factor > p.FalseAlarmsLaxest {
		c.Factor, c.Capped = p.FalseAlarmsLaxest, true
	}
	c.Factor = max(c.Factor, leastFactor)
	for _, score := range sorted {
		c.Quiet += b2i(score <= c.Factor)
	}
	return c
}

// leastFactor keeps a factor above 0, because 0 means that there is none.
const leastFactor = 0.01

// calibrate raises or lowers the thresholds of the loop rules: each warns above
// the factor times its threshold. Critical thresholds are never lowered.
func (s *settings) calibrate(c *ckpt.Calibration) {
	if c.Factor <= 0 {
		return
	}
	s.good = *c
	for _, l := range loops() {
		set := s.rules[l.rule()]
		set.warn = set.warn.above(c.Factor, l.rule())
		if c.Factor >= 1 {
			set.critical = set.critical.above(c.Factor, l.rule())
		}
		if set.warn.value > 0 && set.critical.value > 0 {
			set.critical.value = max(set.critical.value, set.warn.value+1)
		}
		s.rules[l.rule()] = set
	}
}

// above returns the smallest count that is more than a factor times a threshold. Errors
// are counted by halves.
func (t threshold) above(factor float64, rule string) threshold {
	if t.value == 0 {
		return t
	}
	unit := 1.0
	if rule == RuleErrorStreak || rule == RuleErrorRate {
		unit = 0.5
	}
	t.value = max(2, unit*(math.Floor(factor*t.value/unit+1e-9)+1))
	return t
}

// calibrated adds to a finding how unusual it is for this agent.
func (s *settings) calibrated(f observer.Found) observer.Found {
	c := &s.good
	if c.Factor <= 0 {
		return f
	}
	f.Evidence.GoodRuns = c.Runs
	if c.Quiet == c.Runs {
		f.Message += fmt.Sprintf(" In %d runs of this agent that ended well nothing like it came.", c.Runs)
	} else {
		f.Message += fmt.Sprintf(" In %d of %d runs of this agent that ended well nothing like it came.", c.Quiet, c.Runs)
	}
	return f
}

// evaluated returns a policy without the rules that a recorded run cannot trigger: those
// about removed checkpoints, and about time without records.
func evaluated(p *ckpt.Policy) ckpt.Policy {
	plain := *p
	plain.CheckpointInterval, plain.RefreshAfter = 0, 0
	return plain
}
