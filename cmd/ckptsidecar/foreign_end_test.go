package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/cli"
	"github.com/ckptsidecar/ckptsidecar/internal/ipc/client"
)

// importForeign imports files of another system with the command, and fails the test if that does not succeed.
func importForeign(t *testing.T, socket string, args ...string) {
	t.Helper()
	got := call(t, "", append([]string{"import", "--socket", socket}, args...)...)
	if got.code != cli.ExitDone {
		t.Fatalf("import ends with %d: %s%s", got.code, got.stdout, got.stderr)
	}
}

// worker continues an imported run: it requests each step, does those that were not done, and counts its effects on
// the world. After a number of effects it dies without notice.
type worker struct {
	t       *testing.T
	client  *client.Client
	agent   string
	run     string
	effects map[string]int
	left    int
}

// resume claims the run and returns the plan. It uses force, because the previous worker is dead.
func (w *worker) resume() *ckpt.Plan {
	w.t.Helper()
	plan, _, err := w.client.Resume(w.t.Context(), ckpt.ResumeRequest{Agent: w.agent, Run: w.run, Force: true})
	if err != nil {
		w.t.Fatal(err)
	}
	if plan.Verdict != ckpt.VerdictResume && plan.Verdict != ckpt.VerdictRepair {
		w.t.Fatalf("%s: %v", plan.Verdict, plan.Reasons)
	}
	return plan
}

// step does a step once. It returns false if the worker died before the effect.
func (w *worker) step(epoch int64, key string) bool {
	w.t.Helper()
	ref := ckpt.RunRef{Agent: w.agent, Run: w.run, Epoch: &epoch}
	begun, _, err := w.client.BeginStep(w.t.Context(), ref, ckpt.StepRequest{Key: key, Name: key})
	if err != nil {
		w.t.Fatal(err)
	}
	if begun.Replayed {
		return true
	}
	if w.left == 0 {
		return false
	}
	w.left--
	w.effects[key]++
	if _, _, err := w.client.FinishStep(w.t.Context(), ref, ckpt.StepRequest{Key: key, Result: ckpt.JSON(`"done"`)}); err != nil {
		w.t.Fatal(err)
	}
	return true
}

func (w *worker) end(epoch int64, state string) {
	w.t.Helper()
	ref := ckpt.RunRef{Agent: w.agent, Run: w.run, Epoch: &epoch}
	run, _, err := w.client.EndRun(w.t.Context(), ref, ckpt.EndRequest{Status: ckpt.RunCompleted, State: ckpt.JSON(state)})
	if err != nil || run.Status != ckpt.RunCompleted {
		w.t.Fatalf("%+v, %v", run, err)
	}
}

// TestAnImportedWorkflowRunsToItsEnd: a workflow snapshot is imported and resumed. The worker dies after each of
// its effects in turn, and the workflow ends. Steps that the snapshot had done are not done again, and all others
// are done once.
func TestAnImportedWorkflowRunsToItsEnd(t *testing.T) {
	t.Parallel()
	socket := serveFor(t)
	c := &client.Client{Socket: socket}
	defer c.Close()
	file := filepath.Join(t.TempDir(), "s.json")
	if err := os.WriteFile(file, longSnapshot(1), 0o600); err != nil {
		t.Fatal(err)
	}
	importForeign(t, socket, "--format", "workflow-snapshot", file)
	w := &worker{t: t, client: c, agent: "w", run: "r", effects: map[string]int{}}
	steps := []string{"a", "b", "c", "d", "e", "f"} // the workflow; a, d and e were done in the snapshot
	lives := 0
	for done := false; !done; lives++ {
		plan := w.resume()
		var state map[string]any
		if err := json.Unmarshal(plan.Checkpoint.State, &state); err != nil || state["runId"] != "r" {
			t.Fatalf("life %d: the state is not the snapshot: %v", lives, err)
		}
		w.left = 1
		done = !slices.ContainsFunc(steps, func(key string) bool { return !w.step(plan.Epoch, key) })
		if done {
			w.end(plan.Epoch, `{"ended":true}`)
		}
	}
	if want := map[string]int{"b": 1, "c": 1, "f": 1}; !maps.Equal(w.effects, want) {
		t.Errorf("in %d lives the effects were %v", lives, w.effects)
	}
	importForeign(t, socket, "--format", "workflow-snapshot", file)
	run, err := c.Run(t.Context(), ckpt.RunRef{Agent: "w", Run: "r"})
	if err != nil || run.Status != ckpt.RunCompleted {
		t.Errorf("after the same import again: %+v, %v", run, err)
	}
}

// loopState is the state of a loop of the other system.
const loopState = `{"loop_name":"fixer","current_state":"verify","iteration":7,"captured":{"goal":"Fix it"},"prev_result":null,"last_result":null,
	"started_at":"2026-06-29T22:00:00Z","updated_at":"2026-06-29T22:41:07.512000+00:00","status":"running","continuation_prompt":"Begin with TestBackoff.",
	"accumulated_ms":2467512,"retry_counts":{"verify":2},"rate_limit_retries":{},"consecutive_rate_limit_exhaustions":0,"edge_revisit_counts":{"verify->implement":3},
	"active_sub_loop":null,"pid":2147480000}`

// TestAnImportedLoopRunsToItsEnd: a loop is imported at its seventh iteration and resumed. The worker dies in each
// iteration once, and the loop ends after its tenth with its counters, its time and its prompt. Each iteration has
// its effect once.
func TestAnImportedLoopRunsToItsEnd(t *testing.T) {
	t.Parallel()
	socket := serveFor(t)
	c := &client.Client{Socket: socket}
	defer c.Close()
	folder := t.TempDir()
	if err := os.MkdirAll(filepath.Join(folder, ".running"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(folder, ".running", "fixer.state.json"), []byte(loopState), 0o600); err != nil {
		t.Fatal(err)
	}
	importForeign(t, socket, "--format", "fsm-loop", folder)
	page, err := c.Runs(t.Context(), ckpt.RunFilter{Agent: "fixer"})
	if err != nil || len(page.Runs) != 1 {
		t.Fatalf("%+v, %v", page, err)
	}
	w := &worker{t: t, client: c, agent: "fixer", run: page.Runs[0].Run, effects: map[string]int{}}
	for life := 0; ; life++ {
		plan := w.resume()
		var state struct {
			Iteration    int            `json:"iteration"`
			RetryCounts  map[string]int `json:"retry_counts"`
			CurrentState string         `json:"current_state"`
		}
		if err := json.Unmarshal(plan.Checkpoint.State, &state); err != nil || state.RetryCounts["verify"] != 2 || state.CurrentState != "verify" {
			t.Fatalf("life %d: %s, %v", life, plan.Checkpoint.State, err)
		}
		if life == 0 && (plan.ContinuationPrompt != "Begin with TestBackoff." || state.Iteration != 7) {
			t.Errorf("the plan says %q, iteration %d", plan.ContinuationPrompt, state.Iteration)
		}
		if plan.AccumulatedMS < 2467512 {
			t.Errorf("life %d: it has worked for %d ms", life, plan.AccumulatedMS)
		}
		if w.left = 1; !w.goOn(plan.Epoch, state.Iteration) {
			continue
		}
		break
	}
	want := map[string]int{"iteration-8": 1, "iteration-9": 1, "iteration-10": 1}
	if !maps.Equal(w.effects, want) {
		t.Errorf("the effects were %v", w.effects)
	}
}

// goOn continues a loop up to its tenth iteration, and saves after each one. It returns false if the worker died.
func (w *worker) goOn(epoch int64, iteration int) bool {
	w.t.Helper()
	state := ""
	for iteration++; iteration <= 10; iteration++ {
		if !w.step(epoch, fmt.Sprint("iteration-", iteration)) {
			return false
		}
		state = fmt.Sprintf(`{"loop_name":"fixer","current_state":"verify","iteration":%d,"retry_counts":{"verify":2}}`, iteration)
		_, err := w.client.Save(w.t.Context(), &ckpt.SaveRequest{
			Agent: w.agent, Run: w.run, Epoch: &epoch, Kind: ckpt.KindRoutine, ContentType: ckpt.ContentTypeJSON, State: []byte(state),
		})
		if err != nil {
			w.t.Fatal(err)
		}
	}
	w.end(epoch, state)
	return true
}
