package drift

import (
	"math"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

// due is something that should have come by a time. It is told when it is
// overdue, and again whenever it is overdue by twice as much.
type due struct {
	since time.Time // when it last came
	told  int       // how often, since then
}

// came is that it came.
func (d *due) came(at time.Time) {
	if at.After(d.since) {
		d.since, d.told = at, 0
	}
}

// overdue says whether that is to be told now.
func (d *due) overdue(now time.Time, after time.Duration) bool {
	if after <= 0 || d.since.IsZero() || now.Sub(d.since) <= after<<min(d.told, 20) {
		return false
	}
	for now.Sub(d.since) > after<<min(d.told, 20) && d.told < 20 {
		d.told++
	}
	return true
}

// settle takes what is overdue as told.
func (d *due) settle(now time.Time, after time.Duration) { d.overdue(now, after) }

// interval is a duration of the policy at a threshold of the rule.
func (s setting) interval(d ckpt.Duration) time.Duration {
	scaled := float64(d) * s.warn.value
	if scaled >= math.MaxInt64>>21 {
		return math.MaxInt64 >> 21
	}
	return time.Duration(scaled)
}

// aged finds that no routine checkpoint or no refresh came for long.
func (r *run) aged(found []ckpt.Found, now time.Time) []ckpt.Found {
	if set := r.set.rules[RuleStaleCheckpoint]; !set.off {
		after := set.interval(r.set.policy.CheckpointInterval)
		if r.routine.overdue(now, after) {
			age := spentText(now.Sub(r.routine.since))
			found = append(found, ckpt.Found{
				Rule: RuleStaleCheckpoint, Severity: set.one, SinceSeq: r.seq,
				Message:  sentence("The last routine checkpoint is %s old; one is due every %s.", age, spentText(after)),
				Advice:   sentence("Your last routine checkpoint is %s old. Save one now: what you did since would be lost.", age),
				Evidence: ckpt.Evidence{Threshold: spentText(after), Observed: age},
			})
		}
	}
	if set := r.set.rules[RuleContextAge]; !set.off {
		after := set.interval(r.set.policy.RefreshAfter)
		if r.refresh.overdue(now, after) {
			age := spentText(now.Sub(r.refresh.since))
			found = append(found, ckpt.Found{
				Rule: RuleContextAge, Severity: set.one, SinceSeq: r.seq,
				Message:  sentence("The context is %s old; a refresh is advised after %s.", age, spentText(after)),
				Advice:   sentence("Your context is %s old. Save a recovery checkpoint with what matters, and restart from it with a fresh context.", age),
				Evidence: ckpt.Evidence{Threshold: spentText(after), Observed: age},
			})
		}
	}
	return found
}
