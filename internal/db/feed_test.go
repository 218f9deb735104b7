package db_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/survey"
)

// told waits for the next changes, as "what agent/run".
func told(t *testing.T, next func(context.Context) ([]survey.Change, error)) (list []string) {
	t.Helper()
	changes, err := next(t.Context())
	must(t, err)
	for _, c := range changes {
		list = append(list, fmt.Sprintf("%d %s %s/%s", c.N, c.What, c.Agent, c.Run))
	}
	return list
}

// TestChangesAreTold: a watcher learns only of changes to his own runs, and an administrator of all changes.
func TestChangesAreTold(t *testing.T) {
	t.Parallel()
	s, _, _ := openRuns(t)
	mine, stop := s.WatchChanges(ann)
	defer stop()
	all, stopAll := s.WatchChanges(root)
	defer stopAll()
	startRun(t, s, "a", "r", 1)
	save(t, s, bob, "b", ckpt.KindRoutine, `1`)
	for range 2 { // the second is reported together with the first
		_, _, err := s.BeginStep(t.Context(), as(1), ckpt.RunRef{Agent: "a", Run: "r"}, ckpt.StepRequest{Key: "k", Name: "n"})
		must(t, err)
	}
	critical(t, s, "a", "r", "m")
	if got := told(t, mine); !slices.Equal(got, []string{"1 run a/r", "2 step a/r", "3 finding a/r"}) {
		t.Errorf("ann is told %q", got)
	}
	if got := told(t, all); len(got) != 4 || !slices.Contains(got, "2 checkpoint b/main") {
		t.Errorf("an administrator is told %q", got)
	}
	if got := sqlite3(t, pathOf(s), `SELECT count(*) FROM audit_log WHERE action = 'admin_watch_changes'`); got != "1" {
		t.Errorf("%s rows say that an administrator watches", got)
	}
	_, _, err := s.EndRun(t.Context(), as(1), ckpt.RunRef{Agent: "a", Run: "r"}, ckpt.EndRequest{Status: ckpt.RunCompleted})
	must(t, err)
	if got := told(t, mine); !slices.Equal(got, []string{"4 run a/r"}) {
		t.Errorf("after the end ann is told %q", got)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := mine(ended); err == nil {
		t.Error("who waits for nothing is not let go")
	}
}

// TestASlowWatcherIsToldToLookAtAll: the number of changes that are kept for a watcher is bounded.
func TestASlowWatcherIsToldToLookAtAll(t *testing.T) {
	t.Parallel()
	s, _ := open(t)
	next, stop := s.WatchChanges(ann)
	defer stop()
	for i := range 1100 {
		r := request("a", ckpt.KindRoutine, `1`)
		r.Run = fmt.Sprint("r", i)
		_, err := s.Save(t.Context(), ann, r)
		must(t, err)
	}
	if got := told(t, next); !slices.Equal(got, []string{"1 all /"}) {
		t.Errorf("a slow watcher is told %d changes, the first %q", len(got), got[0])
	}
	save(t, s, ann, "a", ckpt.KindRoutine, `2`)
	if got := told(t, next); !slices.Equal(got, []string{"2 checkpoint a/main"}) {
		t.Errorf("and then %q", got)
	}
}
