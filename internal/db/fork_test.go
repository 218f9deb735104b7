package db_test

import (
	"encoding/json"
	"fmt"
	"sync"
	"testing"

	"github.com/google/uuid"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

// TestForksAtOnce: of many concurrent forks into one new run, one is made and
// the others get a conflict, in any order. A repeated request for the fork that
// was made is replayed.
func TestForksAtOnce(t *testing.T) {
	t.Parallel()
	s, _ := open(t)
	from := save(t, s, ann, "a", ckpt.KindRoutine, `{"n":0}`)
	for round := range 20 {
		run := fmt.Sprint("fork", round)
		var all sync.WaitGroup
		made, told := make(chan *ckpt.Saved, 8), make(chan error, 8)
		for i := range 8 {
			all.Go(func() {
				id, _ := uuid.NewV7()
				saved, err := s.Save(t.Context(), ann, &ckpt.SaveRequest{
					ID: id.String(), Agent: "a", Run: run, Kind: ckpt.KindRoutine, ContentType: ckpt.ContentTypeJSON, State: fmt.Appendf(nil, `{"n":%d}`, i), ForkFrom: ckpt.Ref(from.ID),
				})
				if err != nil {
					told <- err
				} else {
					made <- saved
				}
			})
		}
		all.Wait()
		close(told)
		if len(made) != 1 {
			t.Fatalf("%s: %d were made", run, len(made))
		}
		for err := range told {
			wantCode(t, err, ckpt.CodeConflict)
		}
		first := <-made
		if string(first.Parent) != from.ID || first.Seq != 1 {
			t.Errorf("%s begins with number %d and the parent %s", run, first.Seq, first.Parent)
		}
		row, err := s.Run(t.Context(), ann, ckpt.RunRef{Agent: "a", Run: run})
		must(t, err)
		if string(row.ForkedFrom) != from.ID {
			t.Errorf("%s is forked from %q", run, row.ForkedFrom)
		}
		page, err := s.Checkpoints(t.Context(), ann, ckpt.CheckpointFilter{Agent: "a", Run: run})
		must(t, err)
		if len(page.Checkpoints) != 1 {
			t.Errorf("%s has %d checkpoints", run, len(page.Checkpoints))
		}
		c, err := s.Checkpoint(t.Context(), ann, first.ID, true)
		must(t, err)
		again, err := s.Save(t.Context(), ann, &ckpt.SaveRequest{
			ID: first.ID, Agent: "a", Run: run, Kind: ckpt.KindRoutine, ContentType: ckpt.ContentTypeJSON, State: json.RawMessage(c.State), ForkFrom: ckpt.Ref(from.ID),
		})
		must(t, err)
		if !again.Replayed {
			t.Error("the same fork again was not the first reply")
		}
	}
	if list := violations(t, s); len(list) > 0 {
		t.Errorf("audit_violations: %v", list)
	}
}

// TestForkFrom: a fork starts from something that the owner has, and makes a
// run that does not exist yet. This also holds for a run that was only
// registered.
func TestForkFrom(t *testing.T) {
	t.Parallel()
	s, _ := open(t)
	from := save(t, s, ann, "a", ckpt.KindRoutine, `1`)
	fork := func(sc ckpt.Scope, agent, run string, of string) (*ckpt.Saved, error) {
		return s.Save(t.Context(), sc, &ckpt.SaveRequest{Agent: agent, Run: run, Kind: ckpt.KindRoutine, ContentType: ckpt.ContentTypeJSON, State: []byte(`2`), ForkFrom: ckpt.Ref(of)})
	}
	_, err := fork(bob, "a", "r", from.ID)
	wantCode(t, err, ckpt.CodeNotFound)
	_, _, err = s.StartRun(t.Context(), ann, ckpt.RunRequest{Agent: "a", Run: "begun"})
	must(t, err)
	_, err = fork(ann, "a", "begun", from.ID)
	wantCode(t, err, ckpt.CodeConflict)
	_, err = fork(ann, "a", "main", from.ID)
	wantCode(t, err, ckpt.CodeConflict)
	other, err := fork(ann, "other", "r", from.ID)
	must(t, err)
	row, err := s.Run(t.Context(), ann, ckpt.RunRef{Agent: "other", Run: "r"})
	must(t, err)
	if other.Parent != "" || string(row.ForkedFrom) != from.ID {
		t.Errorf("in another agent the parent is %q, the run forked from %q", other.Parent, row.ForkedFrom)
	}
	// A run that was registered as a fork cannot become a fork of something
	// else.
	second := save(t, s, ann, "a", ckpt.KindRoutine, `3`)
	start := func(of string) error {
		_, _, err := s.StartRun(t.Context(), ann, ckpt.RunRequest{Agent: "a", Run: "registered", ForkFrom: ckpt.Ref(of)})
		return err
	}
	must(t, start(from.ID))
	wantCode(t, start(second.ID), ckpt.CodeConflict)
	sound(t, s.Opt.Path)
}

// TestAForkBegunAnewIsNoFork: a fork that has ended and begins again begins with nothing, also one
// in another agent, unless it is forked again.
func TestAForkBegunAnewIsNoFork(t *testing.T) {
	t.Parallel()
	s, _, p := openRuns(t)
	from := ckpt.Ref(save(t, s, ann, "a", ckpt.KindRoutine, `1`).ID)
	begin := func(agent string, pid int, from ckpt.Ref) *ckpt.Run {
		t.Helper()
		run, _, err := s.StartRun(t.Context(), as(pid), ckpt.RunRequest{Agent: agent, Run: "r", PID: pid, ForkFrom: from})
		must(t, err)
		return run
	}
	end := func(agent string) {
		t.Helper()
		_, _, err := s.EndRun(t.Context(), ann, ckpt.RunRef{Agent: agent, Run: "r"}, ckpt.EndRequest{Status: ckpt.RunCompleted})
		must(t, err)
	}
	_, err := s.Save(t.Context(), as(1), &ckpt.SaveRequest{Agent: "other", Run: "r", Kind: ckpt.KindRoutine,
		ContentType: ckpt.ContentTypeJSON, State: []byte(`2`), ForkFrom: from})
	must(t, err)
	begin("a", 1, from)
	for i, agent := range []string{"a", "other"} {
		pid := 20 + i
		end(agent)
		if run := begin(agent, pid, ""); run.ForkedFrom != "" {
			t.Errorf("%s: it is still a fork of %s", agent, run.ForkedFrom)
		}
		p.kill(pid)
		plan, _, err := s.Resume(t.Context(), as(30), ckpt.ResumeRequest{Agent: agent, Run: "r", PID: 30})
		if err != nil {
			t.Errorf("%s: it cannot be resumed: %v", agent, err)
			continue
		}
		if plan.Checkpoint != nil {
			t.Errorf("%s: it goes on from %s of run %s", agent, plan.Checkpoint.ID, plan.Checkpoint.Run)
		}
	}
	end("a")
	if run := begin("a", 40, from); run.ForkedFrom != from {
		t.Errorf("forked again, it is a fork of %q", run.ForkedFrom)
	}
	sound(t, s.Opt.Path)
}

// TestTheBaseOfALaterForkStays: also a fork into a run that has checkpoints from before it was begun anew needs the
// checkpoint that it comes from, until it has saved one of its own.
func TestTheBaseOfALaterForkStays(t *testing.T) {
	t.Parallel()
	s, _, _ := openRuns(t)
	policy := ckpt.DefaultPolicy()
	policy.RoutineKeep = 2
	_, err := s.SetPolicy(t.Context(), ann, "a", policy)
	must(t, err)
	put := func(run, state string) *ckpt.Saved {
		t.Helper()
		r := request("a", ckpt.KindRoutine, state)
		r.Run = run
		saved, err := s.Save(t.Context(), as(1), r)
		must(t, err)
		return saved
	}
	begin := func(from string) {
		t.Helper()
		_, _, err := s.StartRun(t.Context(), as(1), ckpt.RunRequest{Agent: "a", Run: "r", PID: 1, ForkFrom: ckpt.Ref(from)})
		must(t, err)
	}
	begin("")
	put("r", `0`)
	put("r", `1`)
	_, _, err = s.EndRun(t.Context(), as(1), ckpt.RunRef{Agent: "a", Run: "r"}, ckpt.EndRequest{Status: ckpt.RunCompleted})
	must(t, err)
	base := put("main", `2`).ID
	begin("")
	begin(base)
	for i := range 4 {
		put("main", fmt.Sprint(i))
	}
	_, err = s.Checkpoint(t.Context(), ann, base, false)
	must(t, err)
	if got := sqlite3(t, "-readonly", s.Opt.Path, `SELECT needed_by FROM needed_checkpoints WHERE id = '`+base+`'`); got != "a fork\nthe next save" {
		t.Errorf("the base is needed by %q", got)
	}
	_, err = s.DeleteRun(t.Context(), ckpt.Scope{Caller: root.Caller, Target: ann.Caller.Owner}, ckpt.RunRef{Agent: "a"}, true)
	wantCode(t, err, ckpt.CodeConflict)
	if first := put("r", `3`); string(first.Parent) != base {
		t.Errorf("the fork begins with the parent %s", first.Parent)
	}
	_, err = s.Checkpoint(t.Context(), ann, base, false)
	wantCode(t, err, ckpt.CodeNotFound)
	for run, want := range map[string]int{"r": 1, "r~1": 2} {
		page, err := s.Checkpoints(t.Context(), ann, ckpt.CheckpointFilter{Agent: "a", Run: run})
		must(t, err)
		if len(page.Checkpoints) != want {
			t.Errorf("%s has %d checkpoints, not %d", run, len(page.Checkpoints), want)
		}
	}
	sound(t, s.Opt.Path)
}
