package client_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/client"
)

// TestALoopHearsThatItDrifts: every step returns the verdict, and the loop stops with an error. The next start
// goes on from the newest clean checkpoint.
func TestALoopHearsThatItDrifts(t *testing.T) {
	t.Parallel()
	d := started(t)
	agent := d.open(t).Agent("loop")
	turns, told := 0, ckpt.DriftVerdict{}
	err := agent.Run(t.Context(), client.RunOptions{}, func(ctx context.Context, run *client.Run) error {
		for turns < 50 {
			o := client.StepOptions{Name: "search", Args: map[string]string{"q": "the same"}}
			if _, err := client.Step(ctx, run, fmt.Sprint("search ", turns), func(context.Context) (string, error) { return "nothing new", nil }, o); err != nil {
				return err
			}
			turns++
			if _, err := run.Save(ctx, turns); err != nil {
				return err
			}
			if told = run.Drift(); told.Critical() {
				return errors.New(string(told.Advice))
			}
		}
		return nil
	})
	if err == nil || err.Error() != string(told.Advice) {
		t.Errorf("after %d turns: %v", turns, err)
	}
	must(t, agent.Run(t.Context(), client.RunOptions{}, func(_ context.Context, run *client.Run) error {
		clean := 0
		_, err := run.Restore(&clean)
		if run.Plan.Verdict != ckpt.VerdictRepair || run.Plan.Checkpoint.ID != string(told.Clean) || clean >= turns {
			t.Errorf("after %d turns the next start has the state %d and the plan %+v", turns, clean, run.Plan)
		}
		return err
	}))
}

// TestReportsAndDismissals: an agent's own finding changes the verdict, and its
// dismissal changes it back. A finding of another client arrives with the
// heartbeat.
func TestReportsAndDismissals(t *testing.T) {
	t.Parallel()
	d := started(t)
	told := make(chan ckpt.DriftVerdict, 10)
	agent := d.open(t).Agent("reports")
	must(t, agent.Run(t.Context(), client.RunOptions{Heartbeat: 20 * time.Millisecond, OnDrift: func(v ckpt.DriftVerdict) { told <- v }}, func(ctx context.Context, run *client.Run) error {
		if v := run.Drift(); v.Verdict != ckpt.SeverityNone {
			t.Errorf("at the beginning: %+v", v)
		}
		clean, err := run.Save(ctx, map[string]int{"n": 1})
		must(t, err)
		f, err := run.Report(ctx, ckpt.FindingRequest{Rule: "wrong-file", Severity: ckpt.SeverityCritical, Message: "it edits a file of somebody else"})
		must(t, err)
		if v := <-told; !v.Critical() || string(v.Clean) != clean.ID || !run.Drift().Critical() {
			t.Errorf("after the report: %+v", v)
		}
		_, err = run.Dismiss(ctx, f.ID, "it was its own")
		must(t, err)
		if run.Drift().Critical() {
			t.Error("the verdict stays after the dismissal")
		}
		_, _, err = d.open(t).Wire().PostFinding(ctx, "reports", ckpt.FindingRequest{Rule: "seen", Severity: ckpt.SeverityCritical, Message: "m"})
		must(t, err)
		for v := range told { // it arrives with the heartbeat
			if v.Critical() {
				return nil
			}
		}
		return nil
	}))
}

// TestTenEqualCalls: a loop is seen in every form of a step: with arguments as a loop, and without arguments by its results.
func TestTenEqualCalls(t *testing.T) {
	t.Parallel()
	d := started(t)
	args := map[string]string{"q": "x"}
	for form, test := range map[string]struct {
		options []client.StepOptions
		verdict ckpt.Severity
		rule    string
	}{
		"key":               {nil, ckpt.SeverityWarn, "repeated_result"},
		"key-name":          {[]client.StepOptions{{Name: "search"}}, ckpt.SeverityWarn, "repeated_result"},
		"key-and-args":      {[]client.StepOptions{{Args: args}}, ckpt.SeverityCritical, "repeat"},
		"key-name-and-args": {[]client.StepOptions{{Name: "search", Args: args}}, ckpt.SeverityCritical, "repeat"},
	} {
		t.Run(form, func(t *testing.T) {
			t.Parallel()
			agent := d.open(t).Agent(form)
			must(t, agent.Run(t.Context(), client.RunOptions{}, func(ctx context.Context, run *client.Run) error {
				for k := range 10 {
					_, err := client.Step(ctx, run, fmt.Sprint("search-", k), func(context.Context) (string, error) { return "nothing", nil }, test.options...)
					must(t, err)
				}
				if v := run.Drift(); v.Verdict != test.verdict {
					t.Errorf("the verdict is %+v, not %s", v, test.verdict)
				}
				report, err := d.open(t).Wire().Drift(ctx, ckpt.DriftFilter{Agent: form})
				must(t, err)
				for _, f := range report.Findings {
					if f.Rule != test.rule {
						t.Errorf("there is also %s: %s", f.Rule, f.Message)
					}
				}
				return nil
			}))
		})
	}
}
