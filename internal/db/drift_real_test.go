package db_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db"
	"github.com/ckptsidecar/ckptsidecar/internal/drift"
	"github.com/ckptsidecar/ckptsidecar/internal/expect"
)

// These tests use the store with the real detectors.

func openReal(t testing.TB) *drifty {
	return openDrifty(t, func(o *db.Options) { o.Drift = drift.New() })
}

// TestHostileRuleHoldsUpNobody: rules that would run forever are stopped at
// their bound, and a finding says so. The saves of that agent still succeed,
// and other agents' saves continue.
func TestHostileRuleHoldsUpNobody(t *testing.T) {
	t.Parallel()
	d := openReal(t)
	d.policy(func(p *ckpt.Policy) {
		for i := range ckpt.MaxRules {
			p.Rules = append(p.Rules, ckpt.Rule{Name: fmt.Sprint("hostile", i), When: "any(state.l, any(state.l, any(state.l, # > 1e9)))", Severity: ckpt.SeverityCritical, Message: "m"})
		}
	})
	state := `{"l":[` + strings.Repeat("1,", 20000) + `1]}`
	var others sync.WaitGroup
	for i := range 4 {
		others.Go(func() {
			for n := range 10 {
				if _, err := d.Save(t.Context(), bob, request(fmt.Sprint("b", i), ckpt.KindRoutine, fmt.Sprintf(`{"n":%d}`, n))); err != nil {
					t.Error(err)
				}
			}
		})
	}
	saved := d.put(state)
	others.Wait()
	if saved.Suspect || saved.Drift.Verdict != ckpt.SeverityWarn || !strings.Contains(saved.Drift.Findings[0].Message, "was stopped") {
		t.Fatalf("%+v", saved.Drift)
	}
	d.noViolations()
}

// TestRealLoop is the acceptance test of section 9 with the real detectors: a
// loop is critical within its threshold, and there is a rollback target,
// although each step made two checkpoints.
func TestRealLoop(t *testing.T) {
	t.Parallel()
	expect.OneThread(t)
	for _, each := range []int{1, 2, 4} {
		t.Run(fmt.Sprint(each), func(t *testing.T) {
			d := openReal(t)
			start(t, d.Store, 1)
			d.put(`{"plan":["a"],"n":0}`)
			var last *ckpt.Step
			for i := range 5 {
				last = d.record("search", "nothing")
				if d.reopen(); i == 4 {
					break
				}
				for n := range each {
					d.put(fmt.Sprintf(`{"plan":["a"],"n":%d}`, i*each+n+1))
				}
			}
			if last.Drift.Verdict != ckpt.SeverityCritical || last.Drift.Clean == "" || last.Drift.Recovery == "" || last.Drift.Advice == "" {
				t.Fatalf("%+v, there is %s", last.Drift, d.marks())
			}
			d.noViolations()
			plan := claim(t, d.Store, 1)
			if wantVerdict(t, plan, ckpt.VerdictRepair); plan.Checkpoint.ID != string(last.Drift.Clean) {
				t.Fatalf("resumes from %s, the verdict named %s", plan.Checkpoint.ID, last.Drift.Clean)
			}
			d.record("write", "done")
			if saved := d.put(`{"plan":[],"n":99}`); saved.Suspect || saved.Drift.Verdict != ckpt.SeverityNone {
				t.Fatalf("%+v", saved)
			}
			d.noViolations()
			sound(t, d.options.Path)
		})
	}
}

// TestPollingIsNoLoop: calls that get new results are work, not a loop.
func TestPollingIsNoLoop(t *testing.T) {
	t.Parallel()
	d := openReal(t)
	d.put(`{"n":0}`)
	for i := range 30 {
		if step := d.record("status", fmt.Sprint("stage ", strings.Repeat("i", i))); step.Drift.Verdict != ckpt.SeverityNone {
			t.Fatalf("poll %d: %+v", i, step.Drift)
		}
	}
}

// TestShippedSchema: a policy can name the built-in schema of workflow
// snapshots.
func TestShippedSchema(t *testing.T) {
	t.Parallel()
	d := openReal(t)
	p := ckpt.DefaultPolicy()
	p.Schema = ckpt.JSON(`"no-such-schema"`)
	_, err := d.SetPolicy(t.Context(), ann, "a", p)
	wantCode(t, err, ckpt.CodeInvalid)
	d.policy(func(p *ckpt.Policy) { p.Schema = ckpt.JSON(`"workflow-snapshot"`) })
	_, err = d.Save(t.Context(), ann, request("a", ckpt.KindRoutine, `{"version":"1.0.0","runId":7}`))
	if wantCode(t, err, ckpt.CodeSchemaMismatch); !strings.Contains(err.Error(), "/runId") {
		t.Error(err)
	}
}

// TestPreviousStateIsOfThisSegment: for an agent's own rules, the previous
// state is the one that the run goes on from. States that it has left behind
// do not count.
func TestPreviousStateIsOfThisSegment(t *testing.T) {
	t.Parallel()
	state := func(n int) string { return fmt.Sprintf(`{"iteration":%d}`, n) }
	with := func(t *testing.T, severity ckpt.Severity) *drifty {
		d := openReal(t)
		d.policy(func(p *ckpt.Policy) {
			p.Rules = []ckpt.Rule{{Name: "went_back", When: "state.iteration < previous.iteration", Severity: severity, Message: "m"}}
		})
		start(t, d.Store, 1)
		return d
	}
	t.Run("begun again", func(t *testing.T) {
		d := with(t, ckpt.SeverityCritical)
		d.put(state(9))
		if _, _, err := d.EndRun(t.Context(), ann, mainRun, ckpt.EndRequest{Status: ckpt.RunCompleted}); err != nil {
			t.Fatal(err)
		}
		start(t, d.Store, 1)
		wantSeverity(t, d.put(state(1)).Drift, ckpt.SeverityNone)
		wantSeverity(t, d.put(state(0)).Drift, ckpt.SeverityCritical, "went_back")
	})
	t.Run("small after large", func(t *testing.T) { // only large states stay in memory
		large := func(n int) string { return fmt.Sprintf(`{"iteration":%d,"pad":%q}`, n, strings.Repeat("x", 5000)) }
		d := with(t, ckpt.SeverityWarn)
		d.put(large(9))
		if _, _, err := d.EndRun(t.Context(), ann, mainRun, ckpt.EndRequest{Status: ckpt.RunCompleted}); err != nil {
			t.Fatal(err)
		}
		start(t, d.Store, 1)
		wantSeverity(t, d.put(state(1)).Drift, ckpt.SeverityNone)
		wantSeverity(t, d.put(state(2)).Drift, ckpt.SeverityNone)
		d.put(large(5))
		d.put(state(9))
		wantSeverity(t, d.put(state(7)).Drift, ckpt.SeverityWarn, "went_back")
	})
	t.Run("resumed", func(t *testing.T) {
		d := with(t, ckpt.SeverityCritical)
		d.put(state(5))
		good := d.put(state(9))
		wantSeverity(t, d.put(state(3)).Drift, ckpt.SeverityCritical, "went_back")
		if plan := claim(t, d.Store, 1); plan.Checkpoint.ID != good.ID {
			t.Fatalf("resumes from %s", plan.Checkpoint.ID)
		}
		wantSeverity(t, d.put(state(8)).Drift, ckpt.SeverityCritical, "went_back")
	})
	t.Run("restored", func(t *testing.T) {
		d := with(t, ckpt.SeverityWarn)
		early := d.put(state(5))
		d.put(state(9))
		if _, _, err := d.Restore(t.Context(), ann, ckpt.RestoreRequest{Agent: "a", Checkpoint: early.ID}); err != nil {
			t.Fatal(err)
		}
		wantSeverity(t, d.put(state(6)).Drift, ckpt.SeverityNone)
	})
}

// TestProgressBeginsAgainWithTheSegment: a run that went back declares its
// progress anew. Less than before is no sign of drift then.
func TestProgressBeginsAgainWithTheSegment(t *testing.T) {
	t.Parallel()
	d := openReal(t)
	d.policy(func(p *ckpt.Policy) { p.Detectors = map[string]ckpt.Detector{"progress_reversed": {Tier: "warn"}} })
	beat := func(progress float64) {
		t.Helper()
		_, err := d.Beat(t.Context(), as(1), mainRun, ckpt.Heartbeat{Progress: &progress})
		if err != nil {
			t.Fatal(err)
		}
	}
	start(t, d.Store, 1)
	d.put(`{"n":1}`)
	beat(0.9)
	wantVerdict(t, claim(t, d.Store, 1), ckpt.VerdictResume)
	beat(0.5)
	wantSeverity(t, &d.report(false).DriftVerdict, ckpt.SeverityNone)
	beat(0.3)
	wantSeverity(t, &d.report(false).DriftVerdict, ckpt.SeverityWarn, "progress_reversed")
}
