package db_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db"
	"github.com/ckptsidecar/ckptsidecar/internal/survey"
)

func forecast(t testing.TB, s *db.Store, sc ckpt.Scope, f survey.ForecastQuery) *survey.Forecast {
	t.Helper()
	v, err := s.Forecast(t.Context(), sc, f)
	must(t, err)
	return v
}

// turns lists the removals, as "when run seq".
func turns(v *survey.Forecast) (list []string) {
	for _, g := range v.Going {
		list = append(list, fmt.Sprintf("%s %s %d", g.When, g.Run, g.Seq))
	}
	return list
}

// TestForecastComesTrue: what the forecast says about the next save and about ages is what happens.
func TestForecastComesTrue(t *testing.T) {
	t.Parallel()
	s, c := open(t)
	_, err := s.SetOwnPolicy(t.Context(), ann, "a", []byte(`{"routine_keep":2,"recovery_keep":"1h"}`))
	must(t, err)
	saveIn := func(run string, kind ckpt.Kind) *ckpt.Saved {
		t.Helper()
		r := request("a", kind, fmt.Sprint(c.Now().UnixNano()))
		r.Run = run
		saved, err := s.Save(t.Context(), ann, r)
		must(t, err)
		return saved
	}
	saveIn("r", ckpt.KindRoutine)
	saveIn("r", ckpt.KindRecovery)
	c.add(time.Minute)
	saveIn("r", ckpt.KindRoutine)
	v := forecast(t, s, ann, survey.ForecastQuery{Agent: "a"})
	if got := turns(v); !slices.Equal(got, []string{"next_save r 1", "age r 2"}) {
		t.Fatalf("going %q", got)
	}
	if g := v.Going[1]; !g.Goes.Equal(c.Now().Add(59*time.Minute)) || g.Reason == "" || g.StoredSize == 0 || g.Kind != ckpt.KindRecovery {
		t.Errorf("the recovery checkpoint: %+v", g)
	}
	if len(v.Keeping) != 1 || v.Keeping[0].Checkpoints != 1 || v.WhatIf || v.Guarded {
		t.Errorf("keeping %+v", v.Keeping)
	}
	saved := saveIn("r", ckpt.KindRoutine)
	if !slices.Equal(saved.Pruned, []string{v.Going[0].Checkpoint}) {
		t.Errorf("the save removed %v, foretold was %s", saved.Pruned, v.Going[0].Checkpoint)
	}
	prune := func() []ckpt.Removal {
		t.Helper()
		rep, _, err := s.Prune(t.Context(), ann, ckpt.PruneRequest{Agent: "a"}, "")
		must(t, err)
		return rep.Removed
	}
	c.add(v.Going[1].Goes.Sub(c.Now()) - time.Millisecond)
	if gone := prune(); len(gone) != 0 {
		t.Errorf("before its time went %+v", gone)
	}
	c.add(time.Millisecond)
	if got := turns(forecast(t, s, ann, survey.ForecastQuery{})); !slices.Contains(got, "now r 2") {
		t.Errorf("when its age is over: %q", got)
	}
	if gone := prune(); len(gone) != 1 || gone[0].Checkpoint != v.Going[1].Checkpoint {
		t.Errorf("at its time went %+v", gone)
	}

	// An ended run is removed as a whole.
	saveIn("over", ckpt.KindRoutine)
	_, _, err = s.EndRun(t.Context(), ann, ckpt.RunRef{Agent: "a", Run: "over"}, ckpt.EndRequest{Status: ckpt.RunCompleted})
	must(t, err)
	v = forecast(t, s, ann, survey.ForecastQuery{Agent: "a"})
	i := slices.IndexFunc(v.Going, func(g survey.Going) bool { return g.Run == "over" })
	if i < 0 || v.Going[i].When != survey.GoesByAge || !v.Going[i].Goes.Equal(c.Now().Add(30*ckpt.Day)) {
		t.Errorf("the ended run: %+v", v.Going)
	}
}

// TestForecastOfOtherSettings: the forecast says what would happen to the checkpoints, and nothing happens to them.
func TestForecastOfOtherSettings(t *testing.T) {
	t.Parallel()
	s, c := open(t)
	_, err := s.SetOwnPolicy(t.Context(), ann, "a", []byte(`{"routine_keep":0}`))
	must(t, err)
	var ids []string
	for i := range 5 {
		ids = append(ids, save(t, s, ann, "a", ckpt.KindRoutine, fmt.Sprint(i)).ID)
		c.add(time.Second)
	}
	pin := true
	_, err = s.Patch(t.Context(), ann, ids[1], ckpt.CheckpointPatch{Pinned: &pin})
	must(t, err)
	if v := forecast(t, s, ann, survey.ForecastQuery{}); len(v.Going) != 0 {
		t.Errorf("with all kept goes %q", turns(v))
	}
	keep := 2
	v := forecast(t, s, ann, survey.ForecastQuery{RoutineKeep: &keep})
	if got := turns(v); !slices.Equal(got, []string{"now main 3", "now main 1", "next_save main 4"}) && !slices.Equal(got, []string{"now main 1", "now main 3", "next_save main 4"}) || !v.WhatIf {
		t.Errorf("with two kept goes %q", got)
	}
	if !slices.ContainsFunc(v.Keeping, func(k survey.Keeping) bool { return k.Rule == "pinned" && k.Checkpoints == 1 }) {
		t.Errorf("keeping %+v", v.Keeping)
	}
	most := int64(1)
	v = forecast(t, s, ann, survey.ForecastQuery{MaxBytes: &most})
	if got := turns(v); !slices.Equal(got, []string{"now main 1", "now main 3", "now main 4"}) {
		t.Errorf("with a budget goes %q", got)
	}
	v = forecast(t, s, ann, survey.ForecastQuery{MaxBytes: &most, Limit: 1})
	if len(v.Going) != 1 || v.MoreGoing != 2 {
		t.Errorf("one of %d, %d more", len(v.Going), v.MoreGoing)
	}
	if got := seqs(t, s, ann, "a"); len(got) != 5 {
		t.Errorf("a forecast has left %q", got)
	}
	if v := forecast(t, s, bob, survey.ForecastQuery{RoutineKeep: &keep}); len(v.Going)+len(v.Keeping) != 0 {
		t.Errorf("bob is told %+v", v)
	}
	_, err = s.Forecast(t.Context(), bob, survey.ForecastQuery{Agent: "a"})
	wantCode(t, err, ckpt.CodeNotFound)
	c.guarded = true
	if v := forecast(t, s, ann, survey.ForecastQuery{}); !v.Guarded {
		t.Error("the guard is not told")
	}
}

// TestBudgetsAheadAndNow: a forecast and a prune apply the budget of an agent as retention's next round does. A
// forecast names each checkpoint once.
func TestBudgetsAheadAndNow(t *testing.T) {
	t.Parallel()
	s, c := open(t)
	_, err := s.SetOwnPolicy(t.Context(), ann, "a", []byte(`{"routine_keep":0,"recovery_keep":"1h","max_bytes":3500}`))
	must(t, err)
	var ids []string
	for i, kind := range []ckpt.Kind{ckpt.KindRoutine, ckpt.KindRoutine, ckpt.KindRoutine, ckpt.KindRecovery, ckpt.KindRoutine} {
		saved, err := s.Save(t.Context(), ann, binary("a", kind, noise(uint64(i), 1000)))
		must(t, err)
		ids = append(ids, saved.ID)
		c.add(time.Second)
	}
	ahead := func(want ...string) {
		t.Helper()
		v := forecast(t, s, ann, survey.ForecastQuery{Agent: "a"})
		kept := int64(0)
		for _, k := range v.Keeping {
			kept += k.Checkpoints
		}
		going, bytes := int64(0), int64(0)
		for _, g := range v.Going {
			if g.When != survey.GoesByBudget {
				going++
				bytes += g.StoredSize
			}
		}
		if got := turns(v); !slices.Equal(got, want) || going+kept != int64(len(ids)) || v.Bytes != bytes {
			t.Errorf("going %q, %d bytes, %d are kept; want %q", got, v.Bytes, kept, want)
		}
	}
	prune := func(dry bool, want ...string) {
		t.Helper()
		rep, _, err := s.Prune(t.Context(), ann, ckpt.PruneRequest{DryRun: dry}, "")
		must(t, err)
		got := []string{}
		for _, r := range rep.Removed {
			got = append(got, r.Checkpoint)
		}
		if !slices.Equal(got, want) {
			t.Errorf("a prune (dry: %v) removes %q, want %q", dry, got, want)
		}
	}
	ahead("now main 1", "now main 2", "age main 4", "budget main 3")
	prune(true, ids[0], ids[1])
	prune(false, ids[0], ids[1])
	prune(true)
	ids = ids[2:]
	ahead("age main 4", "budget main 3")
	_, err = s.SetOwnPolicy(t.Context(), ann, "a", []byte(`{"routine_keep":0,"recovery_keep":"1h","max_bytes":2500}`))
	must(t, err)
	ahead("now main 3", "age main 4")
	c.add(time.Hour) // what goes by age is enough for the budget
	ahead("now main 4", "budget main 3")
	prune(true, ids[1])
	prune(false, ids[1])
}
