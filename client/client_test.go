package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/client"
	"github.com/ckptsidecar/ckptsidecar/internal/expect"
)

type state struct {
	Step  int    `json:"step"`
	Notes string `json:"notes"`
}

func TestSaveAndRestore(t *testing.T) {
	t.Parallel()
	c := started(t).open(t)
	agent := c.Agent("a")
	first, err := agent.Save(t.Context(), state{1, "<ä>"})
	must(t, err)
	second, err := agent.Save(t.Context(), state{2, "b"}, client.SaveOptions{Labels: ckpt.Labels{"k": "v"}, Metadata: map[string]any{"x": 1}})
	must(t, err)
	if first.Fate != client.Stored || second.Seq != 2 || string(second.Parent) != first.ID {
		t.Errorf("%+v\n%+v", first, second)
	}
	var got state
	if _, err := agent.Restore(t.Context(), &got); err != nil || got != (state{2, "b"}) {
		t.Errorf("%+v, %v", got, err)
	}
	_, err = agent.Save(t.Context(), state{3, "other"}, client.SaveOptions{Run: "other"})
	must(t, err)
	for o, want := range map[client.LatestOptions]int{{}: 3, {Run: "main"}: 2, {Run: "other", Clean: true}: 3} {
		if _, err := agent.Latest(t.Context(), &got, o); err != nil || got.Step != want {
			t.Errorf("%+v: %+v, %v", o, got, err)
		}
	}
	if _, err := agent.Restore(t.Context(), &got, client.RestoreOptions{Checkpoint: first.ID}); err != nil || got != (state{1, "<ä>"}) {
		t.Errorf("%+v, %v", got, err)
	}
	page, err := agent.List(t.Context(), ckpt.CheckpointFilter{Labels: ckpt.Labels{"k": "v"}})
	if err != nil || len(page.Checkpoints) != 1 || page.Checkpoints[0].ID != second.ID {
		t.Errorf("%+v, %v", page, err)
	}
	diff, err := agent.Diff(t.Context(), first.ID, second.ID)
	if err != nil || !strings.Contains(fmt.Sprint(diff), "notes") {
		t.Errorf("%+v, %v", diff, err)
	}
	raw := []byte{0, 1, 0xff}
	_, err = agent.Save(t.Context(), raw)
	must(t, err)
	var bytes []byte
	if _, err := agent.Latest(t.Context(), &bytes); err != nil || !slices.Equal(bytes, raw) {
		t.Errorf("%v, %v", bytes, err)
	}
}

// TestEmptyStateIsRefused: three empty states would push out every good one.
func TestEmptyStateIsRefused(t *testing.T) {
	t.Parallel()
	agent := started(t).open(t).Agent("a")
	for _, empty := range []any{[]byte{}, []byte(nil), json.RawMessage("")} {
		if _, err := agent.Save(t.Context(), empty); ckpt.CodeOf(err) != ckpt.CodeInvalid || !strings.Contains(err.Error(), "SaveOptions.Empty") {
			t.Errorf("%T: %v", empty, err)
		}
	}
	saved, err := agent.Save(t.Context(), []byte{}, client.SaveOptions{Empty: true})
	if err != nil || saved.Seq != 1 {
		t.Errorf("%+v, %v", saved, err)
	}
}

func TestNobodyThere(t *testing.T) {
	t.Parallel()
	c := newDaemon(t).open(t, func(c *client.Client) { c.Deadline = -1 })
	_, err := c.Agent("a").Save(t.Context(), 1)
	if err == nil || !strings.Contains(err.Error(), "ckptsidecar serve") {
		t.Errorf("%v", err)
	}
	_, err = c.Agent("a").Start(t.Context(), client.RunOptions{})
	if err == nil || !strings.Contains(err.Error(), "ckptsidecar serve") {
		t.Errorf("%v", err)
	}
}

var awayTime = flag.Duration("away", 2*time.Second, "how long TestDaemonGoesAndComes leaves clients without a daemon; make clients-go says 10s")

// TestDaemonGoesAndComes stops the daemon repeatedly while three clients save.
// They get no error, and afterwards every save is there once, in order.
func TestDaemonGoesAndComes(t *testing.T) {
	t.Parallel()
	d := started(t)
	c := d.open(t)
	p := ckpt.DefaultPolicy()
	p.RoutineKeep = 0
	var workers sync.WaitGroup
	ctx, stop := context.WithCancel(t.Context())
	var mu sync.Mutex
	sent, stored := map[string][]string{}, map[string]int{}
	spooled := 0
	for i := range 3 {
		name := fmt.Sprint("agent", i)
		_, err := c.Agent(name).SetPolicy(t.Context(), p)
		must(t, err)
		own := d.open(t, failOpen)
		workers.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				saved, err := own.Agent(name).Save(context.Background(), state{n, strings.Repeat("x", n%3000)})
				if err != nil {
					t.Errorf("%s: %v", name, err)
					return
				}
				mu.Lock()
				sent[name] = append(sent[name], saved.ID)
				if saved.Fate == client.Spooled {
					spooled++
				} else {
					stored[name]++
				}
				mu.Unlock()
				time.Sleep(5 * time.Millisecond)
			}
		})
	}
	// more waits until the daemon has stored this many more saves of each agent. A busy machine may take
	// long, but while the daemon runs, it does not take a minute for one save.
	more := func(saves int) {
		least, before := saves, -1
		mu.Lock()
		for _, n := range stored {
			least = max(least, n+saves)
		}
		mu.Unlock()
		for progress := time.Now(); ; time.Sleep(20 * time.Millisecond) {
			waiting, err := filepath.Glob(filepath.Join(d.dir, "spool", "*.ckpt"))
			must(t, err)
			mu.Lock()
			enough := stored["agent0"] >= least && stored["agent1"] >= least && stored["agent2"] >= least
			arrived := stored["agent0"] + stored["agent1"] + stored["agent2"] + spooled - len(waiting)
			mu.Unlock()
			if enough {
				return
			}
			if arrived > before {
				before, progress = arrived, time.Now()
			}
			if time.Since(progress) > time.Minute {
				t.Fatalf("the agents do not get on: %v are stored, and %d wait", stored, len(waiting))
			}
		}
	}
	more(20)
	d.stop()
	time.Sleep(*awayTime)
	d.start()
	more(100)
	stop()
	workers.Wait()
	if r, err := d.open(t).Replay(t.Context()); err != nil || r.Left+r.Rejected+r.Other > 0 {
		t.Errorf("%+v, %v", r, err)
	}
	if spooled == 0 {
		t.Error("nothing was spooled: the test shows nothing")
	}
	for name, ids := range sent {
		if got := all(t, c, name); !slices.Equal(got, ids) {
			t.Errorf("%s: %d saves were sent, %d are there, in the same order: %v", name, len(ids), len(got), slices.Equal(got, ids))
		}
	}
	t.Logf("%v without a daemon: %d saves of %d and %d and %d were spooled, and all are there once and in order",
		*awayTime, spooled, len(sent["agent0"]), len(sent["agent1"]), len(sent["agent2"]))
}

// all lists an agent's checkpoints, oldest first.
func all(t *testing.T, c *client.Client, agent string) (ids []string) {
	t.Helper()
	before := ""
	for {
		page, err := c.Agent(agent).List(t.Context(), ckpt.CheckpointFilter{Limit: ckpt.MaxLimit, Before: before})
		must(t, err)
		for _, ck := range page.Checkpoints {
			ids = append(ids, ck.ID)
		}
		if before = string(page.Next); before == "" {
			slices.Reverse(ids)
			return ids
		}
	}
}

// TestWithoutADaemon runs an agent from start to end without a daemon, and then
// replays the spool.
func TestWithoutADaemon(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	c := d.open(t, failOpen)
	did := 0
	var took []time.Duration
	err := c.Agent("a").Run(t.Context(), client.RunOptions{Goal: "g"}, func(ctx context.Context, run *client.Run) error {
		for i := range 100 {
			key := fmt.Sprint("s", i%50) // each step is requested twice
			if _, err := client.Step(ctx, run, key, func(context.Context) (int, error) { did++; return i, nil }); err != nil {
				return err
			}
			began := time.Now()
			if _, err := run.Save(ctx, state{Step: i}); err != nil {
				return err
			}
			took = append(took, time.Since(began))
		}
		_, err := run.Operation(ctx, "pay", state{Step: 100}, func(context.Context) error { return nil }, offlineToo)
		return err
	})
	must(t, err)
	slices.Sort(took)
	beyond := took[len(took)*99/100] - c.Deadline
	t.Logf("a save without a daemon: p50 %v; p99 beyond the deadline of %v: %v", took[len(took)/2], c.Deadline, max(beyond, 0))
	if did != 50 {
		t.Errorf("%d steps were done, want 50", did)
	}
	d.start()
	for range 2 { // the second replay has nothing to do
		r, err := c.Replay(t.Context())
		if err != nil || r.Left+r.Rejected+r.Other > 0 {
			t.Errorf("%+v, %v", r, err)
		}
	}
	run, err := c.Wire().Run(t.Context(), ckpt.RunRef{Agent: "a"})
	if err != nil || run.Status != ckpt.RunCompleted {
		t.Errorf("%+v, %v", run, err)
	}
	steps, err := c.Wire().Steps(t.Context(), ckpt.RunRef{Agent: "a"}, ckpt.ListFilter{Limit: 1000})
	if err != nil || len(steps.Steps) != 50 {
		t.Errorf("%d steps, %v", len(steps.Steps), err)
	}
	ck, err := c.Agent("a").Latest(t.Context(), nil)
	if err != nil || ck.Seq != 101 {
		t.Errorf("%+v, %v", ck, err)
	}
}

func TestSpoolThatIsFull(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	c := d.open(t, failOpen, func(c *client.Client) { c.SpoolSize = 3000 })
	agent := c.Agent("a")
	big := strings.Repeat("x", 1500)
	if s, err := agent.Save(t.Context(), big); err != nil || s.Fate != client.Spooled {
		t.Fatalf("%+v, %v", s, err)
	}
	if _, err := agent.Save(t.Context(), big); ckpt.CodeOf(err) != ckpt.CodeStorageFull || !strings.Contains(err.Error(), "at most 3000 bytes") {
		t.Errorf("%v", err)
	}
	d2 := d.open(t, failOpen, func(c *client.Client) { c.SpoolSize, c.DropWhenFull = 3000, true })
	if s, err := d2.Agent("a").Save(t.Context(), big); err != nil || s.Fate != client.Dropped {
		t.Errorf("%+v, %v", s, err)
	}
}

func TestSpoolThatCannotBeWritten(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	file := filepath.Join(d.dir, "file")
	must(t, os.WriteFile(file, nil, 0o600))
	c := d.open(t, failOpen, func(c *client.Client) { c.SpoolDir = file })
	if _, err := c.Agent("a").Save(t.Context(), 1); ckpt.CodeOf(err) != ckpt.CodeStorageFull || !strings.Contains(err.Error(), file) {
		t.Errorf("%v", err)
	}
	open := filepath.Join(d.dir, "open")
	must(t, os.Mkdir(open, 0o700))
	must(t, os.Chmod(open, 0o777))
	c = d.open(t, failOpen, func(c *client.Client) { c.SpoolDir = open })
	if _, err := c.Agent("a").Save(t.Context(), 1); err == nil || !strings.Contains(err.Error(), "others may write") {
		t.Errorf("%v", err)
	}
}

// TestDamagedAndRefusedFilesAreSetAside replays a spool file that is torn, one
// whose writer was replaced, and a good one.
func TestDamagedAndRefusedFilesAreSetAside(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	c := d.open(t, failOpen)
	for i := range 3 {
		_, err := c.Agent(fmt.Sprint("a", i)).Save(t.Context(), i)
		must(t, err)
	}
	files, _ := filepath.Glob(filepath.Join(d.dir, "spool", "*.ckpt"))
	content, err := os.ReadFile(files[0])
	must(t, err)
	must(t, os.WriteFile(files[0], content[:len(content)-1], 0o600))
	content, err = os.ReadFile(files[1])
	must(t, err)
	must(t, os.WriteFile(files[1], []byte(strings.Replace(string(content), `"kind=routine"`, `"kind=nonsense"`, 1)), 0o600))
	d.start()
	r, err := c.Replay(t.Context())
	if err != nil || r.Sent != 1 || r.Rejected != 2 || r.Left != 0 {
		t.Errorf("%+v, %v", r, err)
	}
	notes, _ := filepath.Glob(filepath.Join(d.dir, "spool", "rejected", "*.json"))
	if len(notes) != 2 {
		t.Errorf("%d notes", len(notes))
	}
}

// TestNoWriteOvertakesOneThatStays: a write that can be neither sent nor set aside still comes
// before the next one of its run.
func TestNoWriteOvertakesOneThatStays(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	c := d.open(t, failOpen)
	for i := range 2 {
		_, err := c.Agent("a").Save(t.Context(), i)
		must(t, err)
	}
	files, _ := filepath.Glob(filepath.Join(d.dir, "spool", "*.ckpt"))
	must(t, os.Truncate(files[0], 10))
	note := filepath.Join(d.dir, "spool", "rejected", strings.TrimSuffix(filepath.Base(files[0]), ".ckpt")+".json")
	must(t, os.MkdirAll(note, 0o700))
	d.start()
	c = d.open(t, failOpen)
	if saved, err := c.Agent("a").Save(t.Context(), 2); err != nil || saved.Fate != client.Spooled {
		t.Errorf("%+v, %v", saved, err)
	}
	must(t, os.Remove(note))
	if r, err := c.Replay(t.Context()); err != nil || r.Sent != 2 || r.Rejected != 1 {
		t.Errorf("%+v, %v", r, err)
	}
	var last int
	if _, err := c.Agent("a").Latest(t.Context(), &last); err != nil || last != 2 {
		t.Errorf("the last state is %d, %v", last, err)
	}
}

// TestASpooledBodyThatWasChangedIsNotSent changes a waiting body in the spool.
// A body of the same length is detected by its hash, a shorter one by its size.
func TestASpooledBodyThatWasChangedIsNotSent(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	c := d.open(t, failOpen)
	const agents = 3
	for i := range agents {
		_, err := c.Agent(fmt.Sprint("a", i)).Save(t.Context(), "the state")
		must(t, err)
	}
	files, _ := filepath.Glob(filepath.Join(d.dir, "spool", "*.ckpt"))
	for i, change := range []func(string) string{
		func(text string) string { return strings.Replace(text, "the state", "thE state", 1) },
		func(text string) string { return strings.Replace(text, "the state", "the stat", 1) },
		func(text string) string { return strings.Replace(text, "the state", "the  state", 1) },
	} {
		content, err := os.ReadFile(files[i])
		must(t, err)
		must(t, os.WriteFile(files[i], []byte(change(string(content))), 0o600))
	}
	d.start()
	if r, err := c.Replay(t.Context()); err != nil || r.Sent != 0 || r.Rejected != agents || r.Left != 0 {
		t.Errorf("%+v, %v", r, err)
	}
}

func TestFencedComesAtOnce(t *testing.T) {
	t.Parallel()
	d := started(t)
	c := d.open(t, func(c *client.Client) { c.FailOpen = true })
	old, err := c.Agent("a").Start(t.Context(), client.RunOptions{})
	must(t, err)
	_, err = old.Save(t.Context(), 1)
	must(t, err)
	if _, err := d.open(t).Agent("a").Start(t.Context(), client.RunOptions{Force: true}); err != nil {
		t.Fatal(err)
	}
	if _, err := old.Save(t.Context(), 2); ckpt.CodeOf(err) != ckpt.CodeFenced {
		t.Errorf("%v", err)
	}
	if old.Lost() == nil {
		t.Error("the run does not know that it was lost")
	}
	if left, _ := filepath.Glob(filepath.Join(d.dir, "spool", "*.ckpt")); len(left) > 0 {
		t.Errorf("spooled: %v", left)
	}
}

func TestOperationThatFailsOffersTheState(t *testing.T) {
	t.Parallel()
	c := started(t).open(t)
	run, err := c.Agent("a").Start(t.Context(), client.RunOptions{})
	must(t, err)
	broken := errors.New("broken")
	_, err = run.Operation(t.Context(), "deploy", state{7, "before"}, func(context.Context) error { return client.NotDone(broken) })
	var failed *client.OperationError
	if !errors.As(err, &failed) || !errors.Is(err, broken) || failed.Restore == nil || !strings.Contains(string(failed.Restore.State), `"before"`) {
		t.Fatalf("%v %+v", err, failed)
	}
	done, err := run.Operation(t.Context(), "deploy", state{7, "before"}, func(context.Context) error { return nil })
	if !done || err != nil {
		t.Errorf("%v, %v", done, err)
	}
	done, err = run.Operation(t.Context(), "deploy", nil, func(context.Context) error { t.Error("done twice"); return nil })
	if done || err != nil {
		t.Errorf("%v, %v", done, err)
	}
}

func TestAnErrorLeavesTheRunToBeResumed(t *testing.T) {
	t.Parallel()
	c := started(t).open(t)
	boom := errors.New("boom")
	err := c.Agent("a").Run(t.Context(), client.RunOptions{}, func(ctx context.Context, run *client.Run) error {
		run.State(func() any { return state{5, "last"} })
		return boom
	})
	if !errors.Is(err, boom) {
		t.Fatal(err)
	}
	err = c.Agent("a").Run(t.Context(), client.RunOptions{}, func(ctx context.Context, run *client.Run) error {
		var got state
		found, err := run.Restore(&got)
		if !found || got != (state{5, "last"}) || run.Plan.Checkpoint.Kind != ckpt.KindRecovery {
			t.Errorf("%v %+v %v", found, got, run.Plan.Verdict)
		}
		return err
	})
	must(t, err)
}

func TestAutosave(t *testing.T) {
	t.Parallel()
	c := started(t).open(t)
	run, err := c.Agent("a").Start(t.Context(), client.RunOptions{})
	must(t, err)
	var mu sync.Mutex
	now := state{}
	run.State(func() any { mu.Lock(); defer mu.Unlock(); return now })
	stop := run.Autosave(t.Context(), 10*time.Millisecond)
	for i := range 3 {
		mu.Lock()
		now.Step = i
		mu.Unlock()
		var got state
		expect.Soon(t, fmt.Sprintf("the state of step %d is saved", i), func() bool {
			_, err := c.Agent("a").Latest(t.Context(), &got)
			return err == nil && got.Step == i
		})
	}
	stop()
	must(t, run.End(t.Context(), ckpt.EndRequest{Status: ckpt.RunSuspended}))
	if page, err := c.Agent("a").List(t.Context(), ckpt.CheckpointFilter{}); err != nil || len(page.Checkpoints) != 3 {
		t.Errorf("%d checkpoints of three states, %v", len(page.Checkpoints), err)
	}
}

// TestSharedByMany: 16 goroutines share one client, and the saves of each one
// are in its order.
func TestSharedByMany(t *testing.T) {
	t.Parallel()
	c := started(t).open(t)
	p := ckpt.DefaultPolicy()
	p.RoutineKeep = 0
	var group sync.WaitGroup
	for g := range 16 {
		agent := c.Agent(fmt.Sprint("a", g))
		_, err := agent.SetPolicy(t.Context(), p)
		must(t, err)
		group.Go(func() {
			var ids []string
			for i := range 20 {
				saved, err := agent.Save(t.Context(), state{Step: i})
				if err != nil {
					t.Error(err)
					return
				}
				ids = append(ids, saved.ID)
			}
			if got := all(t, c, agent.Name); !slices.Equal(got, ids) {
				t.Errorf("%s is out of order", agent.Name)
			}
		})
	}
	group.Wait()
}

// TestStepsTellTurnsAndNegativeAnswers: steps record the model's turn, and
// whether their answer was negative.
func TestStepsTellTurnsAndNegativeAnswers(t *testing.T) {
	t.Parallel()
	d := started(t)
	agent := d.open(t).Agent("turns")
	nothing := func(result any, err error) bool { return result == "" }
	run := func(ctx context.Context, run *client.Run) error {
		for i, answer := range []string{"", "a line"} {
			o := client.StepOptions{Name: "grep", Turn: "msg_1", Negative: nothing}
			if _, err := client.Step(ctx, run, fmt.Sprint("grep ", i), func(context.Context) (string, error) { return answer, nil }, o); err != nil {
				return err
			}
		}
		_, err := client.Step(ctx, run, "diff", func(context.Context) (string, error) { return "", errors.New("exit 1") }, client.StepOptions{Negative: nothing})
		if err == nil {
			t.Error("the step that failed is no error")
		}
		return nil
	}
	must(t, agent.Run(t.Context(), client.RunOptions{}, run))
	page, err := d.open(t).Wire().Steps(t.Context(), ckpt.RunRef{Agent: "turns", Run: "main"}, ckpt.ListFilter{})
	must(t, err)
	seen := map[string]string{}
	for _, s := range page.Steps {
		seen[s.Key] = fmt.Sprintf("%s %s %s", s.Status, s.Turn, s.Outcome)
	}
	want := map[string]string{"grep 0": "succeeded msg_1 negative", "grep 1": "succeeded msg_1 ", "diff": "failed  negative"}
	if !maps.Equal(seen, want) {
		t.Errorf("the steps are %q, want %q", seen, want)
	}
}

// TestFilesOfAnotherDaemonCostNothing: a client reads their first lines once and never their
// bodies, and does not wait for somebody who sends them.
func TestFilesOfAnotherDaemonCostNothing(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	other := d.open(t, failOpen, func(c *client.Client) { c.Socket += "other" })
	_, err := other.Agent("a").Save(t.Context(), "the state")
	must(t, err)
	spool := filepath.Join(d.dir, "spool")
	files, _ := filepath.Glob(filepath.Join(spool, "*.ckpt"))
	content, err := os.ReadFile(files[0])
	must(t, err)
	d.start()
	must(t, os.WriteFile(filepath.Join(spool, "replay.lock"), []byte(`{"pid":1,"host":"another host","token":"t"}`), 0o600))
	c := d.open(t, failOpen, func(c *client.Client) { c.Deadline = time.Minute })
	for i, broken := range []string{strings.Replace(string(content), "the state", "thE state", 1), "not even a first line"} {
		must(t, os.WriteFile(files[0], []byte(broken), 0o600))
		if saved, err := c.Agent("a").Save(t.Context(), i); err != nil || saved.Fate != client.Stored {
			t.Errorf("%+v, %v", saved, err)
		}
		if r, err := c.Replay(t.Context()); err != nil || r.Other != 1 || r.Rejected != 0 {
			t.Errorf("%+v, %v", r, err)
		}
	}
}

// TestRunsOfAnotherOwnerAreNotThisRun: what waits for a run of the same name of another owner is
// not sent before a write of this run.
func TestRunsOfAnotherOwnerAreNotThisRun(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	_, err := d.open(t, failOpen, func(c *client.Client) { c.Owner = "uid:7" }).Agent("a").Save(t.Context(), 1)
	must(t, err)
	d.start()
	c := d.open(t, failOpen, func(c *client.Client) { c.Deadline = time.Minute })
	if saved, err := c.Agent("a").Save(t.Context(), 2); err != nil || saved.Fate != client.Stored {
		t.Errorf("%+v, %v", saved, err)
	}
	if files, _ := filepath.Glob(filepath.Join(d.dir, "spool", "*.ckpt")); len(files) != 1 {
		t.Errorf("these wait: %v", files)
	}
}
