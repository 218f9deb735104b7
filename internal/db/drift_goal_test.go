package db_test

import (
	"testing"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

// TestADismissedGoalIsNotReportedAgain: a goal whose finding was dismissed stays dismissed over a restart.
func TestADismissedGoalIsNotReportedAgain(t *testing.T) {
	t.Parallel()
	for _, restart := range []bool{false, true} {
		d := openReal(t)
		begin := func(goal ckpt.Ref) {
			t.Helper()
			_, _, err := d.StartRun(t.Context(), ann, ckpt.RunRequest{Agent: "a", Goal: goal})
			must(t, err)
		}
		begin("one")
		begin("two")
		wantSeverity(t, &d.report(false).DriftVerdict, ckpt.SeverityWarn, "goal_changed")
		_, _, err := d.Dismiss(t.Context(), ann, ckpt.DismissRequest{ID: d.report(false).Findings[0].ID})
		must(t, err)
		if restart {
			d.reopen()
		}
		begin("two")
		wantSeverity(t, &d.report(false).DriftVerdict, ckpt.SeverityNone)
		begin("three")
		wantSeverity(t, &d.report(false).DriftVerdict, ckpt.SeverityWarn, "goal_changed")
	}
}
