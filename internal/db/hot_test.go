package db_test

import (
	stdsql "database/sql"
	"fmt"
	"path/filepath"
	"slices"
	"testing"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

// TestOtherWritersAreSeen lets somebody else pin a checkpoint with the sqlite3
// command between two saves: what the writer remembers of the run is then old.
func TestOtherWritersAreSeen(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "ckpt.db")
	s := openWith(t, options(path, newClock()))
	first := save(t, s, ann, "a", ckpt.KindRoutine, `0`)
	for i := range 2 {
		save(t, s, ann, "a", ckpt.KindRoutine, fmt.Sprint(i))
	}
	other, err := stdsql.Open("sqlite", path)
	must(t, err)
	defer other.Close()
	if _, err := other.Exec(`UPDATE checkpoints SET pinned = 1 WHERE id = ?`, first.ID); err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		if c := save(t, s, ann, "a", ckpt.KindRoutine, fmt.Sprint(i)); slices.Contains(c.Pruned, first.ID) {
			t.Fatal("a checkpoint was pruned that another program has pinned")
		}
	}
	if got := seqs(t, s, ann, "a"); len(got) != 4 {
		t.Errorf("there are %v", got)
	}
}

// TestRefusedSaveChangesNothing sends a save that is too late in its
// transaction to be refused alone, among others of the same run.
func TestRefusedSaveChangesNothing(t *testing.T) {
	t.Parallel()
	s, _ := open(t)
	taken := save(t, s, ann, "b", ckpt.KindRoutine, `0`)
	for i := range 5 {
		save(t, s, ann, "a", ckpt.KindRoutine, fmt.Sprint(i))
	}
	r := request("a", ckpt.KindRoutine, `"x"`)
	r.ID = taken.ID
	for range 2 {
		_, err := s.Save(t.Context(), ann, r)
		wantCode(t, err, ckpt.CodeIdempotencyMismatch)
	}
	c := save(t, s, ann, "a", ckpt.KindRoutine, `6`)
	if c.Seq != 6 || len(c.Pruned) != 1 {
		t.Errorf("after a refusal: seq %d, pruned %v", c.Seq, c.Pruned)
	}
	if got := seqs(t, s, ann, "a"); !slices.Equal(got, []string{"routine 6", "routine 5", "routine 4"}) {
		t.Errorf("there are %v", got)
	}
}

// TestLateSavesWakeNobody saves into a run that was found dead what had waited
// in a spool: it is stored, and the run stays to be resumed.
func TestLateSavesWakeNobody(t *testing.T) {
	t.Parallel()
	s, _, p := openRuns(t)
	start(t, s, 11)
	save(t, s, as(11), "a", ckpt.KindRoutine, `1`)
	die(t, s, p, 11, ckpt.RunInterrupted)
	late := as(11)
	late.Spooled = ckpt.At(time.Now())
	save(t, s, late, "a", ckpt.KindRoutine, `2`)
	run, err := s.Run(t.Context(), as(11), ckpt.RunRef{Agent: "a"})
	if err != nil || run.Status != ckpt.RunInterrupted {
		t.Errorf("%+v, %v", run, err)
	}
	if plan := claim(t, s, 12); plan.Checkpoint == nil || string(plan.Checkpoint.State) != `2` {
		t.Errorf("%+v", plan)
	}
}
