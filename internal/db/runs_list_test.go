package db_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db"
)

// TestRunPages pages through runs of one agent and of all agents, most recently
// changed first, and filters them.
func TestRunPages(t *testing.T) {
	t.Parallel()
	s, c := open(t)
	var all, ofA []string
	for i := range 9 {
		if i%3 > 0 { // some runs change at the same time
			c.add(time.Second)
		}
		agent := fmt.Sprintf("a%d", i%2)
		_, _, err := s.StartRun(t.Context(), ann, ckpt.RunRequest{Agent: agent, Run: fmt.Sprint(i)})
		must(t, err)
		all = append([]string{fmt.Sprint(i)}, all...)
		if agent == "a0" {
			ofA = append([]string{fmt.Sprint(i)}, ofA...)
		}
	}
	_, _, err := s.StartRun(t.Context(), bob, ckpt.RunRequest{Agent: "a0"})
	must(t, err)
	for agent, want := range map[string][]string{"": all, "a0": ofA} {
		for _, limit := range []int{1, 2, 4, 100} {
			got := []string{}
			f := ckpt.RunFilter{Agent: agent, Limit: limit}
			for {
				page, err := s.Runs(t.Context(), ann, f)
				must(t, err)
				for _, r := range page.Runs {
					got = append(got, r.Run)
				}
				if f.Before = string(page.Next); f.Before == "" {
					break
				}
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("agent %q by pages of %d:\n%s", agent, limit, diff)
			}
		}
	}
	_, _, err = s.EndRun(t.Context(), ann, ckpt.RunRef{Agent: "a0", Run: "4"}, ckpt.EndRequest{Status: ckpt.RunCompleted})
	must(t, err)
	page, err := s.Runs(t.Context(), ann, ckpt.RunFilter{Status: ckpt.RunCompleted})
	must(t, err)
	if len(page.Runs) != 1 || page.Runs[0].Run != "4" {
		t.Errorf("completed are %+v", page.Runs)
	}
	if page, err = s.Runs(t.Context(), root, ckpt.RunFilter{}); err != nil || len(page.Runs) != 10 {
		t.Errorf("an administrator sees %d runs, %v", len(page.Runs), err)
	}
	for name, f := range map[string]ckpt.RunFilter{"limit": {Limit: -1}, "status": {Status: "odd"}, "cursor": {Before: "x"}, "agent": {Agent: "/"}} {
		if _, err := s.Runs(t.Context(), ann, f); ckpt.CodeOf(err) != ckpt.CodeInvalid {
			t.Errorf("%s: %v", name, err)
		}
	}
	_, err = s.Run(t.Context(), ann, ckpt.RunRef{Agent: "a0", Run: "none"})
	wantCode(t, err, ckpt.CodeNotFound)
}

// TestStepAndOperationPages pages through the steps and operations of a run,
// and ends each one that has begun, once.
func TestStepAndOperationPages(t *testing.T) {
	t.Parallel()
	s, _ := open(t)
	save(t, s, ann, "a", ckpt.KindRoutine, `1`)
	var keys, newest []string
	for i := range 7 {
		key := fmt.Sprint("k", i)
		keys, newest = append(keys, key), append([]string{key}, newest...)
		_, _, err := s.BeginStep(t.Context(), ann, mainRun, ckpt.StepRequest{Key: key, Name: "n"})
		must(t, err)
		_, _, err = s.BeginOperation(t.Context(), ann, mainRun, ckpt.OperationRequest{Key: key, Name: "n"})
		must(t, err)
	}
	var steps, operations []string
	f := ckpt.ListFilter{Limit: 3}
	for {
		page, err := s.Steps(t.Context(), ann, mainRun, f)
		must(t, err)
		for _, step := range page.Steps {
			steps = append(steps, step.Key)
		}
		if f.Before = string(page.Next); f.Before == "" {
			break
		}
	}
	for {
		page, err := s.Operations(t.Context(), ann, mainRun, f)
		must(t, err)
		for _, o := range page.Operations {
			operations = append(operations, o.Key)
		}
		if f.Before = string(page.Next); f.Before == "" {
			break
		}
	}
	if diff := cmp.Diff(keys, steps) + cmp.Diff(newest, operations); diff != "" {
		t.Error(diff)
	}
	end := func(key string, status ckpt.OperationStatus, resolve bool) error {
		if resolve {
			_, _, err := s.ResolveOperation(t.Context(), ann, mainRun, ckpt.OperationResolution{Key: key, Choice: ckpt.ChoiceItDid})
			return err
		}
		_, _, err := s.EndOperation(t.Context(), ann, mainRun, ckpt.OperationEnd{Key: key, Status: status})
		return err
	}
	must(t, end("k0", ckpt.OperationSucceeded, false))
	wantCode(t, end("k0", ckpt.OperationFailed, false), ckpt.CodeConflict)
	wantCode(t, end("k1", ckpt.OperationSucceeded, true), ckpt.CodeConflict)
	wantCode(t, end("none", ckpt.OperationSucceeded, false), ckpt.CodeNotFound)
	page, err := s.Operations(t.Context(), ann, mainRun, ckpt.ListFilter{Status: "succeeded"})
	must(t, err)
	if len(page.Operations) != 1 || page.Operations[0].Key != "k0" {
		t.Errorf("succeeded are %+v", page.Operations)
	}
	for _, f := range []ckpt.ListFilter{{Status: "odd"}, {Limit: -1}, {Before: "!"}} {
		_, err := s.Operations(t.Context(), ann, mainRun, f)
		wantCode(t, err, ckpt.CodeInvalid)
		_, err = s.Steps(t.Context(), ann, mainRun, f)
		wantCode(t, err, ckpt.CodeInvalid)
	}
}

// TestFollowersAreTold: a client that waits for events is woken when they are
// on disk, not before.
func TestFollowersAreTold(t *testing.T) {
	t.Parallel()
	s, c := open(t)
	save(t, s, ann, "a", ckpt.KindRoutine, `1`)
	told := s.Changed()
	select {
	case <-told:
		t.Fatal("told before there was anything")
	default:
	}
	_, _, err := s.Append(t.Context(), ann, mainRun, []ckpt.NewEvent{{Type: "t"}}, "")
	must(t, err)
	<-told
	at, err := s.Newest(t.Context())
	must(t, err)
	if !at.Equal(c.Now()) {
		t.Errorf("the newest row is of %s", at)
	}
	if db.SQLiteVersion() < "3.51.3" {
		t.Errorf("SQLite %s", db.SQLiteVersion())
	}
}
