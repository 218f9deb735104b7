package daemon

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

// TestALoopIsFoundByTheDaemon: the packages are connected, the real detectors
// count, and the metrics report the loop without any name that an agent made up.
func TestALoopIsFoundByTheDaemon(t *testing.T) {
	c := sound(t)
	c.DriftInterval = ckpt.Duration(100 * time.Millisecond)
	r := start(t, c)
	r.save("loop", `{"step":0}`)
	ref := ckpt.RunRef{Agent: "loop"}
	var step *ckpt.Step
	for i := range 6 {
		var err error
		step, _, err = r.client.BeginStep(t.Context(), ref, ckpt.StepRequest{Key: fmt.Sprint(i), Name: "search", Args: ckpt.JSON(`{"q":"x"}`), Status: ckpt.StepSucceeded, Result: ckpt.JSON(`"nothing"`)})
		if err != nil {
			t.Fatal(err)
		}
	}
	if step.Drift == nil || step.Drift.Verdict != ckpt.SeverityCritical || step.Drift.Clean == "" || step.Drift.Recovery == "" || step.Drift.Advice == "" {
		t.Fatalf("%+v", step.Drift)
	}
	if _, _, err := r.client.PostFinding(t.Context(), "loop", ckpt.FindingRequest{Rule: "canary-rule", Severity: ckpt.SeverityInfo, Message: "m"}); err != nil {
		t.Fatal(err)
	}
	text := r.get("/metrics")
	for _, want := range []string{
		`ckptsidecar_findings_open{rule="repeat",severity="critical"} 1`, `ckptsidecar_findings_open{rule="own",severity="info"} 1`, `ckptsidecar_drift_watched_runs 1`,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %s in\n%s", want, text)
		}
	}
	if strings.Contains(text, "canary") {
		t.Error("the metrics carry a name that an agent made up")
	}
	bad := ckpt.DefaultPolicy()
	bad.Rules = []ckpt.Rule{{Name: "r", When: "state.(", Severity: ckpt.SeverityWarn, Message: "m"}}
	if _, err := r.client.SetPolicy(t.Context(), "loop", bad); ckpt.CodeOf(err) != ckpt.CodeInvalid {
		t.Errorf("a rule that does not compile: %v", err)
	}
}

type failingTick struct {
	err   error
	ticks chan struct{}
}

func (f *failingTick) TickDrift(context.Context) error {
	f.ticks <- struct{}{}
	return f.err
}

// TestTickerGoesOn: the ticker continues after a failure, and logs the same
// failure only once.
func TestTickerGoesOn(t *testing.T) {
	var log bytes.Buffer
	store := &failingTick{err: errors.New("locked"), ticks: make(chan struct{})}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		(&ticker{tick: store.TickDrift, every: time.Millisecond, log: slog.New(slog.NewTextHandler(&log, nil))}).run(ctx)
	}()
	for range 3 {
		<-store.ticks
	}
	cancel()
	select {
	case <-store.ticks: // one more tick was about to happen
		<-done
	case <-done:
	}
	if n := strings.Count(log.String(), "locked"); n != 1 {
		t.Errorf("said %d times: %s", n, &log)
	}
}
