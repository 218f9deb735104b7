package drift

import (
	"fmt"
	"math"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/drift/observer"
)

// due is an event that is expected regularly. It is reported when it is overdue, and
// again each time that the delay has doubled.
type due struct {
	since time.Time // when it last came
	after float64   // the expected time between two events; 0 if none is expected
	told  int       // the number of reports since then
}

// came records that the event came.
func (d *due) came(at time.Time) {
	if at.After(d.since) {
		d.since, d.told = at, 0
	}
}

// overdue returns whether to report the event now.
func (d *due) overdue(now time.Time) bool {
	if d.after <= 0 || d.since.IsZero() {
		return false
	}
	late := float64(now.Sub(d.since))
	if late <= d.after || late <= math.Ldexp(d.after, d.told) {
		return false
	}
	for late > math.Ldexp(d.after, d.told) {
		d.told++
	}
	return true
}

// interval returns a duration of the policy, multiplied by the threshold of the rule. It
// is 0 if the rule is off.
func (s setting) interval(d ckpt.Duration) float64 {
	if s.off {
		return 0
	}
	return float64(d) * s.warn.value
}

// aged finds that there was no routine checkpoint, or no refresh, for too long.
func (r *run) aged(found []observer.Found, now time.Time) []observer.Found {
	if d := &r.routine; d.overdue(now) {
		age, after := spentText(now.Sub(d.since)), spentText(time.Duration(d.after))
		found = append(found, observer.Found{
			Rule: RuleStaleCheckpoint, Severity: r.set.rules[RuleStaleCheckpoint].one, SinceSeq: r.seq,
			Message:  fmt.Sprintf("No routine checkpoint was saved for %s; one is due every %s.", age, after),
			Advice:   fmt.Sprintf("You have saved no routine checkpoint for %s. Save one now: a crash would lose everything since.", age),
			Evidence: ckpt.Evidence{Threshold: after, Observed: age},
		})
	}
	if d := &r.refresh; d.overdue(now) {
		age, after := spentText(now.Sub(d.since)), spentText(time.Duration(d.after))
		found = append(found, observer.Found{
			Rule: RuleContextAge, Severity: r.set.rules[RuleContextAge].one, SinceSeq: r.seq,
			Message: fmt.Sprintf("The context was not refreshed for %s; the policy advises it after %s.", age, after),
			Advice: fmt.Sprintf("Your context was not refreshed for %s. Save a recovery checkpoint with what matters, and "+
				"restart from it with a fresh context.", age),
			Evidence: ckpt.Evidence{Threshold: after, Observed: age},
		})
	}
	return found
}
