package db_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db"
	"github.com/ckptsidecar/ckptsidecar/internal/expect"
)

// TestLatestIsTheFirstOfTheList: the newest checkpoint is always the first one
// of a list, whatever was saved or deleted, also by other agents.
func TestLatestIsTheFirstOfTheList(t *testing.T) {
	t.Parallel()
	expect.OneThread(t)
	s, _ := open(t)
	for n := range 20 {
		r := request("a", ckpt.KindRoutine, "0")
		r.Run = fmt.Sprint("old-", n)
		_, err := s.Save(t.Context(), ann, r)
		must(t, err)
	}
	random := rand.New(rand.NewPCG(1, 2))
	clean := false
	filters := []ckpt.CheckpointFilter{{Agent: "a"}, {Agent: "a", Kind: ckpt.KindRecovery}, {Agent: "a", Suspect: &clean}}
	for round := range 300 {
		switch n := random.IntN(20); {
		case n < 12:
			r := request("a", []ckpt.Kind{ckpt.KindRoutine, ckpt.KindRecovery}[random.IntN(2)], fmt.Sprint(round))
			r.Run = fmt.Sprint("run-", random.IntN(5))
			_, err := s.Save(t.Context(), ann, r)
			must(t, err)
		case n < 15:
			save(t, s, bob, "a", ckpt.KindRoutine, fmt.Sprint(round))
		case n < 19:
			if c, err := s.Latest(t.Context(), ann, filters[0], false); err == nil {
				_, _ = s.Delete(t.Context(), ann, c.ID) // a needed checkpoint is not deleted
			}
		default:
			r := request("a", ckpt.KindRoutine, fmt.Sprint(round))
			r.Run = fmt.Sprint("new-", round)
			_, err := s.Save(t.Context(), ann, r)
			must(t, err)
		}
		for _, f := range filters {
			wantFirst(t, s, f, fmt.Sprint("round ", round))
		}
	}
}

func wantFirst(t *testing.T, s *db.Store, f ckpt.CheckpointFilter, when string) {
	t.Helper()
	latest, err := s.Latest(t.Context(), ann, f, false)
	f.Limit = 1
	page, listErr := s.Checkpoints(t.Context(), ann, f)
	switch {
	case ckpt.CodeOf(listErr) == ckpt.CodeNotFound || listErr == nil && len(page.Checkpoints) == 0:
		if ckpt.CodeOf(err) != ckpt.CodeNotFound {
			t.Errorf("%s: %+v: the list is empty, and the latest is %+v, %v", when, f, latest, err)
		}
	case err != nil || listErr != nil || latest.ID != page.Checkpoints[0].ID:
		t.Errorf("%s: %+v: the latest is %+v (%v), the list begins with %+v (%v)", when, f, latest, err, page, listErr)
	}
}

// TestLatestAfterAnImport: imported checkpoints are newer than those that the
// agent already had, even if Latest was called before.
func TestLatestAfterAnImport(t *testing.T) {
	t.Parallel()
	s, _, text := exported(t)
	save(t, s, ann, "copy", ckpt.KindRoutine, "0")
	wantFirst(t, s, ckpt.CheckpointFilter{Agent: "copy"}, "before the import")
	_, err := s.Import(t.Context(), ann, ckpt.ImportRequest{Agent: "copy"}, strings.NewReader(text))
	must(t, err)
	wantFirst(t, s, ckpt.CheckpointFilter{Agent: "copy"}, "after the import")
}

// TestLatestAfterARestart: a store that has just been opened remembers nothing,
// and a store that was asked before still sees later saves.
func TestLatestAfterARestart(t *testing.T) {
	t.Parallel()
	path := t.TempDir() + "/ckpt.db"
	s := openWith(t, options(path, newClock()))
	save(t, s, ann, "a", ckpt.KindRoutine, "0")
	must(t, s.Close())
	s = openWith(t, options(path, newClock()))
	defer s.Close()
	wantFirst(t, s, ckpt.CheckpointFilter{Agent: "a"}, "after a restart")
	r := request("a", ckpt.KindRoutine, "1")
	r.Run = "another"
	_, err := s.Save(t.Context(), ann, r)
	must(t, err)
	wantFirst(t, s, ckpt.CheckpointFilter{Agent: "a"}, "after a save in another run")
}

// BenchmarkLatest reads the newest checkpoint of an agent with 10,000 runs,
// right after the agent saved, and after another agent saved 2,000 times.
func BenchmarkLatest(b *testing.B) {
	s, _ := open(b)
	for i := range 10_000 {
		r := request("a", ckpt.KindRoutine, fmt.Sprint(i))
		r.Run = fmt.Sprint("run-", i)
		if _, err := s.Save(b.Context(), ann, r); err != nil {
			b.Fatal(err)
		}
	}
	ask := func(b *testing.B) {
		for b.Loop() {
			if _, err := s.Latest(b.Context(), ann, ckpt.CheckpointFilter{Agent: "a"}, false); err != nil {
				b.Fatal(err)
			}
		}
	}
	b.Run("just saved", ask)
	for i := range 2000 {
		save(b, s, ann, "b", ckpt.KindRoutine, fmt.Sprint(i))
	}
	b.Run("long silent", ask)
}
