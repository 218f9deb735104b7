package db_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db"
)

// forest is an agent with checkpoints of every kind in several runs. All are
// kept, in the order of their saves.
func forest(t *testing.T) (*db.Store, []*ckpt.Saved) {
	t.Helper()
	s, _ := open(t)
	p := ckpt.DefaultPolicy()
	p.RoutineKeep = 0
	_, err := s.SetPolicy(t.Context(), ann, "a", p)
	must(t, err)
	r := rand.New(rand.NewPCG(7, 7))
	var all []*ckpt.Saved
	for i := range 60 {
		r := &ckpt.SaveRequest{Agent: "a", Run: fmt.Sprintf("run%d", r.IntN(4)), Kind: ckpt.Kinds[r.IntN(3)], ContentType: ckpt.ContentTypeJSON,
			State: fmt.Append(nil, i), Labels: ckpt.Labels{"mod": fmt.Sprint(i % 5), "a.b/c-d": "x y"}}
		c, err := s.Save(t.Context(), ann, r)
		must(t, err)
		all = append(all, c)
	}
	save(t, s, ann, "b", ckpt.KindRoutine, `"of another agent"`)
	return s, all
}

// idsOf returns the ids of a naive list, newest first.
func idsOf(all []*ckpt.Saved, fits func(*ckpt.Saved) bool) []string {
	list := []string{}
	for _, c := range slices.Backward(all) {
		if fits(c) {
			list = append(list, c.ID)
		}
	}
	return list
}

// paged reads a list in pages of the given size.
func paged(t *testing.T, s *db.Store, f ckpt.CheckpointFilter, size int) []string {
	t.Helper()
	list := []string{}
	f.Limit = size
	for {
		page, err := s.Checkpoints(t.Context(), ann, f)
		must(t, err)
		for _, c := range page.Checkpoints {
			if c.State != nil {
				t.Error("a list carries states")
			}
			list = append(list, c.ID)
		}
		if page.Next == "" {
			return list
		}
		if len(page.Checkpoints) != size {
			t.Fatalf("a page of %d has %d, and there is a next", size, len(page.Checkpoints))
		}
		f.Before = string(page.Next)
	}
}

// TestLists compares each filter, at each page size, with the naive answer.
func TestLists(t *testing.T) {
	t.Parallel()
	s, all := forest(t)
	yes, no := true, false
	for name, c := range map[string]struct {
		filter ckpt.CheckpointFilter
		fits   func(*ckpt.Saved) bool
	}{
		"all":        {ckpt.CheckpointFilter{}, func(*ckpt.Saved) bool { return true }},
		"run":        {ckpt.CheckpointFilter{Run: "run1"}, func(c *ckpt.Saved) bool { return c.Run == "run1" }},
		"kind":       {ckpt.CheckpointFilter{Kind: ckpt.KindRecovery}, func(c *ckpt.Saved) bool { return c.Kind == ckpt.KindRecovery }},
		"label":      {ckpt.CheckpointFilter{Labels: ckpt.Labels{"mod": "2"}}, func(c *ckpt.Saved) bool { return c.Labels["mod"] == "2" }},
		"two labels": {ckpt.CheckpointFilter{Labels: ckpt.Labels{"mod": "2", "a.b/c-d": "x y"}}, func(c *ckpt.Saved) bool { return c.Labels["mod"] == "2" }},
		"all of it": {ckpt.CheckpointFilter{Run: "run1", Kind: ckpt.KindRoutine, Labels: ckpt.Labels{"mod": "1"}}, func(c *ckpt.Saved) bool {
			return c.Run == "run1" && c.Kind == ckpt.KindRoutine && c.Labels["mod"] == "1"
		}},
		"clean":   {ckpt.CheckpointFilter{Suspect: &no}, func(*ckpt.Saved) bool { return true }},
		"suspect": {ckpt.CheckpointFilter{Suspect: &yes}, func(*ckpt.Saved) bool { return false }},
		"nothing": {ckpt.CheckpointFilter{Run: "none"}, func(*ckpt.Saved) bool { return false }},
	} {
		c.filter.Agent = "a"
		want := idsOf(all, c.fits)
		for _, size := range []int{1, 7, 60, 1000} {
			if diff := cmp.Diff(want, paged(t, s, c.filter, size)); diff != "" {
				t.Errorf("%s by pages of %d:\n%s", name, size, diff)
			}
		}
		latest, err := s.Latest(t.Context(), ann, c.filter, true)
		switch {
		case len(want) == 0:
			wantCode(t, err, ckpt.CodeNotFound)
		case err != nil || latest.ID != want[0] || latest.State == nil:
			t.Errorf("the latest of %s: %v", name, err)
		}
	}
}

// TestLimits checks that lists keep to their bounds and accept only cursors
// that they have returned.
func TestLimits(t *testing.T) {
	t.Parallel()
	s, _ := forest(t)
	for limit, want := range map[int]int{0: ckpt.DefaultLimit, 1: 1, ckpt.MaxLimit: 60} {
		page, err := s.Checkpoints(t.Context(), ann, ckpt.CheckpointFilter{Agent: "a", Limit: limit})
		must(t, err)
		if len(page.Checkpoints) != want {
			t.Errorf("limit %d gives %d", limit, len(page.Checkpoints))
		}
	}
	for name, f := range map[string]ckpt.CheckpointFilter{
		"negative": {Limit: -1}, "too many": {Limit: ckpt.MaxLimit + 1}, "cursor": {Before: "!"}, "cursor of zero": {Before: "0"}, "cursor below": {Before: "-1"},
		"kind": {Kind: "x"}, "run": {Run: "a/b"}, "label": {Labels: ckpt.Labels{`"`: ""}},
	} {
		f.Agent = "a"
		if _, err := s.Checkpoints(t.Context(), ann, f); ckpt.CodeOf(err) != ckpt.CodeInvalid {
			t.Errorf("%s: %v", name, err)
		}
	}
	_, err := s.Checkpoints(t.Context(), ann, ckpt.CheckpointFilter{Agent: "../a"})
	wantCode(t, err, ckpt.CodeInvalid)
}

// TestAgentPages pages through agents, by owner and name.
func TestAgentPages(t *testing.T) {
	t.Parallel()
	s, _ := open(t)
	want := []string{}
	for i := range 7 {
		save(t, s, ann, fmt.Sprintf("a%d", i), ckpt.KindRoutine, `1`)
		want = append(want, fmt.Sprintf("a%d", i))
	}
	got := []string{}
	for cursor := ""; ; {
		page, err := s.Agents(t.Context(), ann, ckpt.AgentFilter{Limit: 2, Before: cursor})
		must(t, err)
		for _, a := range page.Agents {
			got = append(got, a.Agent)
		}
		if cursor = string(page.Next); cursor == "" {
			break
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	_, err := s.Agents(t.Context(), ann, ckpt.AgentFilter{Before: "nonsense"})
	wantCode(t, err, ckpt.CodeInvalid)
	_, err = s.Agents(t.Context(), ann, ckpt.AgentFilter{Limit: -1})
	wantCode(t, err, ckpt.CodeInvalid)
}

// TestCancelledRead: a read ends when its client gives up.
func TestCancelledRead(t *testing.T) {
	t.Parallel()
	s, all := forest(t)
	ctx, cancel := contextWithCancel(t)
	cancel()
	_, err := s.Checkpoint(ctx, ann, all[0].ID, true)
	wantCode(t, err, ckpt.CodeBusy)
}
