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

// TestOtherWritersAreSeen: the sqlite3 command pins a checkpoint between two
// saves, which makes the run cache of the writer outdated.
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

// TestRefusedSaveChangesNothing: a save that is refused late in its transaction
// changes nothing, in between other saves of the same run.
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

// TestLateSavesWakeNobody: saves that waited in a spool arrive after their run
// was found dead. They are stored, and the run still waits to be resumed.
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

// TestSmallSavesTakeTheRowOfWhatGoes: a run that keeps three small checkpoints
// reuses the same rows all the time. Rows that LangGraph's checkpoints refer to
// are not reused.
func TestSmallSavesTakeTheRowOfWhatGoes(t *testing.T) {
	t.Parallel()
	s, _ := open(t)
	slots := func(run string) (list []int64) {
		t.Helper()
		must(t, s.RO.Select(&list, `SELECT c.slot FROM checkpoints c JOIN runs r ON r.id = c.run_id WHERE r.name = ? ORDER BY c.slot`, run))
		return list
	}
	for i := range 6 {
		save(t, s, ann, "a", ckpt.KindRoutine, fmt.Sprint(i))
	}
	before := slots("main")
	for i := range 9 {
		c := save(t, s, ann, "a", ckpt.KindRoutine, fmt.Sprint("1", i))
		if len(c.Pruned) != 1 || c.Seq != int64(7+i) {
			t.Fatalf("%+v", c)
		}
		if got := slots("main"); !slices.Equal(got, before) {
			t.Fatalf("after number %d the rows are %v, not %v", c.Seq, got, before)
		}
	}
	if got := seqs(t, s, ann, "a"); !slices.Equal(got, []string{"routine 15", "routine 14", "routine 13"}) {
		t.Errorf("there are %v", got)
	}
	var broken []string
	must(t, s.RO.Select(&broken, `SELECT rule || ' ' || subject || ' ' || detail FROM audit_violations`))
	if len(broken) > 0 {
		t.Errorf("%q", broken)
	}

	db, err := stdsql.Open("sqlite", s.Opt.Path)
	must(t, err)
	defer db.Close()
	for _, by := range []string{
		`UPDATE checkpoints SET body = '7' WHERE seq = 15`,
		`UPDATE checkpoints SET n = n + 1, seq = seq + 1 WHERE seq = 15`,
		`UPDATE checkpoints SET slot = slot + 1 WHERE seq = 15`,
		`UPDATE checkpoints SET n = n + 9, seq = seq + 9, id = 'x', kind = 'recovery' WHERE seq = 15`,
	} {
		if _, err := db.Exec(by); err == nil {
			t.Errorf("nobody has refused %s", by)
		}
	}
}

// TestLangGraphsRowsAreNotGivenOn: in a thread whose agent keeps few
// checkpoints, each LangGraph row still refers to its own checkpoint.
func TestLangGraphsRowsAreNotGivenOn(t *testing.T) {
	t.Parallel()
	s := newSaver(t)
	p := ckpt.GraphPolicy()
	p.RoutineKeep = 2
	_, err := s.SetPolicy(t.Context(), ann, s.agent, p)
	must(t, err)
	for i := range 7 {
		s.put(root1, fmt.Sprint(i), fmt.Sprint(i+1), fmt.Sprintf(`{"a":%d}`, i), channels{"a": fmt.Sprintf(`"v%d"`, i)})
	}
	s.want(root1, "7", `a@6=json:"v6"`)
	s.want(root1, "6", `a@5=json:"v5"`)
	if n := len(s.list(nil)); n != 2 {
		t.Errorf("there are %d", n)
	}
}
