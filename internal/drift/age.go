package drift

import (
	"fmt"
	"math"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/drift/observer"
)

// due is an event that should have come by a time. It is reported when it is
// overdue, and again whenever it is overdue by twice as much.
type due struct {
	since time.Time // when it last came
	told  int       // how often, since then
}

// came notes that the event came.
func (d *due) came(at time.Time) {
	if at.After(d.since) {
		d.since, d.told = at, 0
	}
}

// overdue says whether to report it now.
func (d *due) overdue(now time.Time, after float64) bool {
	late := float64(now.Sub(d.since))
	if after <= 0 || d.since.IsZero() || late <= math.Ldexp(after, d.told) {
		return false
	}
	for late > math.Ldexp(after, d.told) {
		d.told++
	}
	return true
}

// interval is a duration of the policy at the threshold of the rule.
func (s setting) interval(d ckpt.Duration) float64 { return float64(d) * s.warn.value }

// aged finds that no routine checkpoint or no refresh came for too long.
func (r *run) aged(found []observer.Found, now time.Time) []observer.Found {
	if set := r.set.rules[RuleStaleCheckpoint]; !set.off {
		after := set.interval(r.set.policy.CheckpointInterval)
		if r.routine.overdue(now, after) {
			age := spentText(now.Sub(r.routine.since))
			found = append(found, observer.Found{
				Rule: RuleStaleCheckpoint, Severity: set.one, SinceSeq: r.seq,
				Message:  fmt.Sprintf("No routine checkpoint was saved for %s; one is due every %s.", age, spentText(time.Duration(after))),
				Advice:   fmt.Sprintf("You have saved no routine checkpoint for %s. Save one now: what you did since would be lost.", age),
				Evidence: ckpt.Evidence{Threshold: spentText(time.Duration(after)), Observed: age},
			})
		}
	}
	if set := r.set.rules[RuleContextAge]; !set.off {
		after := set.interval(r.set.policy.RefreshAfter)
		if r.refresh.overdue(now, after) {
			age := spentText(now.Sub(r.refresh.since))
			found = append(found, observer.Found{
				Rule: RuleContextAge, Severity: set.one, SinceSeq: r.seq,
				Message: fmt.Sprintf("The context was not refreshed for %s; that is advised after %s.", age, spentText(time.Duration(after))),
				Advice: fmt.Sprintf("Your context was not refreshed for %s. Save a recovery checkpoint with what matters, and "+
					"restart from it with a fresh context.", age),
				Evidence: ckpt.Evidence{Threshold: spentText(time.Duration(after)), Observed: age},
			})
		}
	}
	return found
}
