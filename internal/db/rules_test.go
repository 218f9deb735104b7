package db_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/expect"
	"github.com/ckptsidecar/ckptsidecar/internal/retention"
)

// These tests check the rules of retention one by one, on the real store with
// the real plan, guard and worker. TestModel has them all at once.

func (s *guarded) save(t testing.TB, kind ckpt.Kind) *ckpt.Saved {
	t.Helper()
	return save(t, s.store, ann, "a", kind, `{"at":"`+s.clocks.Wall().String()+`"}`)
}

func (s *guarded) once(t testing.TB) retention.Result {
	t.Helper()
	result, err := s.worker().Once(t.Context())
	if err != nil || result.Failed > 0 {
		t.Fatal(result.Errors, err)
	}
	return result
}

// change does what another package does inside the writer.
func (s *guarded) change(t testing.TB, query string, args ...any) {
	t.Helper()
	err := s.store.Write("daemon", 0, func(exec func(string, ...any) error) error { return exec(query, args...) })
	if err != nil {
		t.Fatal(err)
	}
}

// operate begins an operation at a checkpoint, with the given status.
func (s *guarded) operate(t testing.TB, key string, c *ckpt.Saved, status ckpt.OperationStatus) {
	t.Helper()
	forge(t, s.path, fmt.Sprintf(`UPDATE checkpoints SET operation = '%s' WHERE id = '%s'`, key, c.ID))
	s.change(t, `INSERT INTO operations (run_id, key, name, status, checkpoint, started_at)
		SELECT run_id, ?, 'risk', ?, id, created_at FROM checkpoints WHERE id = ?`, key, string(status), c.ID)
}

// want fails the test unless exactly these checkpoints exist and the auditor's
// check finds nothing.
func (s *guarded) want(t testing.TB, list ...*ckpt.Saved) {
	t.Helper()
	want := []string{}
	for _, c := range slices.Backward(list) {
		want = append(want, fmt.Sprintf("%s %d", c.Kind, c.Seq))
	}
	if got := seqs(t, s.store, ann, "a"); !slices.Equal(got, want) {
		t.Fatalf("there is %v, want %v", got, want)
	}
	s.wantNoViolations(t)
}

func (s *guarded) wantNoViolations(t testing.TB) {
	t.Helper()
	reader := auditor(t, s.path)
	defer reader.Close()
	found, err := column(reader, `SELECT rule || ' ' || subject || ' ' || detail FROM audit_violations`)
	if err != nil || len(found) > 0 {
		t.Fatalf("audit_violations: %v %v", err, found)
	}
}

func wantPruned(t testing.TB, got *ckpt.Saved, want ...*ckpt.Saved) {
	t.Helper()
	list := []string{}
	for _, c := range want {
		list = append(list, c.ID)
	}
	if !slices.Equal(got.Pruned, list) {
		t.Fatalf("pruned %v, want %v", got.Pruned, list)
	}
}

func TestFourthRoutineSavePrunesTheFirst(t *testing.T) {
	t.Parallel()
	s := openGuarded(t)
	a, b, c := s.save(t, ckpt.KindRoutine), s.save(t, ckpt.KindRoutine), s.save(t, ckpt.KindRoutine)
	wantPruned(t, a)
	wantPruned(t, c)
	d := s.save(t, ckpt.KindRoutine)
	wantPruned(t, d, a)
	s.want(t, b, c, d)
	sound(t, s.path)
}

func TestRoutineKeepOfZeroKeepsAll(t *testing.T) {
	t.Parallel()
	s := openGuarded(t)
	p := ckpt.DefaultPolicy()
	p.RoutineKeep = 0
	if _, err := s.store.SetPolicy(t.Context(), ann, "a", p); err != nil {
		t.Fatal(err)
	}
	var all []*ckpt.Saved
	for range 20 {
		all = append(all, s.save(t, ckpt.KindRoutine))
	}
	s.clocks.pass(365 * ckpt.Day)
	s.once(t)
	s.want(t, all...)
}

func TestRecoveryGoesAtSevenDays(t *testing.T) {
	t.Parallel()
	s := openGuarded(t)
	recovery, newer := s.save(t, ckpt.KindRecovery), s.save(t, ckpt.KindRoutine)
	s.clocks.pass(7*ckpt.Day - time.Millisecond)
	if s.once(t).Guarded {
		t.Fatal("the clock is not trusted")
	}
	s.want(t, recovery, newer)
	s.clocks.pass(time.Millisecond)
	if r := s.once(t); r.Removed != 1 {
		t.Fatalf("%+v", r)
	}
	s.want(t, newer)
	sound(t, s.path)
}

// TestRecoveryThatBecomesOld: a recovery checkpoint stays at any age while it
// is the rollback target. After a newer target exists, the next round removes
// it, and the auditor's check finds nothing in between.
func TestRecoveryThatBecomesOld(t *testing.T) {
	t.Parallel()
	s := openGuarded(t)
	recovery := s.save(t, ckpt.KindRecovery)
	s.clocks.pass(20 * ckpt.Day)
	s.once(t)
	s.want(t, recovery)
	s.clocks.pass(time.Second)
	newer := s.save(t, ckpt.KindRoutine)
	s.wantNoViolations(t)
	s.clocks.pass(time.Minute)
	s.once(t)
	s.want(t, newer)
}

func TestPreOperationStays(t *testing.T) {
	t.Parallel()
	s := openGuarded(t)
	before := s.save(t, ckpt.KindPreOperation)
	s.operate(t, "migrate", before, ckpt.OperationFailed)
	failed := s.save(t, ckpt.KindPreOperation)
	s.operate(t, "deploy", failed, ckpt.OperationFailed)
	last := s.save(t, ckpt.KindRoutine)
	for range 12 {
		s.clocks.pass(31 * ckpt.Day)
		s.once(t)
	}
	s.want(t, before, failed, last)
}

// TestSaveAfterAnOperation: the checkpoint before an operation that succeeded
// is at first the only rollback target. After the next save, that save is the
// target.
func TestSaveAfterAnOperation(t *testing.T) {
	t.Parallel()
	for _, kind := range ckpt.Kinds {
		t.Run(string(kind), func(t *testing.T) {
			s := openGuarded(t)
			first := s.save(t, ckpt.KindRoutine)
			before := s.save(t, ckpt.KindPreOperation)
			s.operate(t, "deploy", before, ckpt.OperationSucceeded)
			s.once(t)
			s.want(t, first, before)
			after := s.save(t, kind)
			wantPruned(t, after, before)
			s.want(t, first, after)
		})
	}
}

// TestNewestCleanStays: no number of newer suspect checkpoints removes the
// rollback target. A new clean checkpoint replaces it in the same answer.
func TestNewestCleanStays(t *testing.T) {
	t.Parallel()
	expect.OneThread(t)
	for _, kind := range ckpt.Kinds {
		t.Run(string(kind), func(t *testing.T) {
			s := openGuarded(t)
			policy := ckpt.DefaultPolicy()
			policy.RoutineKeep = 0
			if _, err := s.store.SetPolicy(t.Context(), ann, "a", policy); err != nil {
				t.Fatal(err)
			}
			old, clean := s.save(t, ckpt.KindRoutine), s.save(t, ckpt.KindRoutine)
			var suspects []*ckpt.Saved
			for range 30 {
				suspects = append(suspects, s.save(t, ckpt.KindRoutine))
			}
			if _, _, err := s.store.PostFinding(t.Context(), ann, "a", ckpt.FindingRequest{Rule: "own", Severity: ckpt.SeverityCritical, Message: "m", SinceSeq: &clean.Seq}); err != nil {
				t.Fatal(err)
			}
			if _, err := s.store.SetPolicy(t.Context(), ann, "a", ckpt.DefaultPolicy()); err != nil {
				t.Fatal(err)
			}
			last := suspects[27:]
			for range 3 {
				s.clocks.pass(31 * ckpt.Day)
				s.once(t)
				s.want(t, append([]*ckpt.Saved{clean}, last...)...)
			}
			if got, _, err := s.store.Restore(t.Context(), ann, ckpt.RestoreRequest{Agent: "a", Clean: true}); err != nil || got.ID != clean.ID {
				t.Fatalf("the way back is %+v, %v", got, err)
			}
			next := s.save(t, kind)
			if string(next.Parent) != clean.ID || slices.Contains(next.Pruned, old.ID) || !slices.Contains(next.Pruned, clean.ID) {
				t.Fatalf("%+v", next)
			}
			if kind == ckpt.KindRoutine {
				last = last[1:]
			}
			s.want(t, append(slices.Clone(last), next)...)
		})
	}
}

func TestNothingGoesByAgeForTenMinutes(t *testing.T) {
	t.Parallel()
	begins := map[string]func(*guarded) error{
		"a start":    func(s *guarded) error { _ = s.store.Close(); return s.open(t.Context()) },
		"a jump":     func(s *guarded) error { s.clocks.jump(10 * 365 * ckpt.Day); return nil },
		"a day back": func(s *guarded) error { s.clocks.jump(-ckpt.Day); return nil },
		"2038": func(s *guarded) error {
			s.clocks.jump(time.Date(2038, 1, 19, 3, 14, 8, 0, time.UTC).Sub(s.clocks.Wall()))
			return nil
		},
	}
	for name, begin := range begins {
		t.Run(name, func(t *testing.T) {
			s := openGuarded(t)
			recovery, newer := s.save(t, ckpt.KindRecovery), s.save(t, ckpt.KindRoutine)
			s.clocks.pass(20 * ckpt.Day)
			s.guard.Now()
			if err := begin(s); err != nil {
				t.Fatal(err)
			}
			for i := range 3 { // at once, after half of the time, and a millisecond before the end
				if r := s.once(t); !r.Guarded || r.Removed+r.Expired+r.Dropped > 0 {
					t.Fatalf("%+v", r)
				}
				rep, _, err := s.store.Prune(t.Context(), ann, ckpt.PruneRequest{}, "")
				if err != nil || !rep.Guarded || len(rep.Removed) > 0 {
					t.Fatalf("%+v, %v", rep, err)
				}
				s.want(t, recovery, newer)
				if i < 2 {
					s.clocks.pass((10*time.Minute - time.Millisecond) / 2)
				}
			}
			s.clocks.pass(time.Millisecond)
			if r := s.once(t); r.Guarded || r.Removed != 1 {
				t.Fatalf("%+v", r)
			}
			s.want(t, newer)
			_ = s.store.Close()
		})
	}
}

func TestPinned(t *testing.T) {
	t.Parallel()
	s := openGuarded(t)
	yes, no := true, false
	pinned := s.save(t, ckpt.KindRoutine)
	if _, err := s.store.Patch(t.Context(), ann, pinned.ID, ckpt.CheckpointPatch{Pinned: &yes}); err != nil {
		t.Fatal(err)
	}
	var list []*ckpt.Saved
	for range 5 {
		list = append(list, s.save(t, ckpt.KindRoutine))
	}
	s.want(t, append([]*ckpt.Saved{pinned}, list[2:]...)...)
	_, err := s.store.Delete(t.Context(), ann, pinned.ID)
	wantCode(t, err, ckpt.CodeConflict)
	if _, err := s.store.Patch(t.Context(), ann, pinned.ID, ckpt.CheckpointPatch{Pinned: &no}); err != nil {
		t.Fatal(err)
	}
	s.want(t, list[2:]...)
}

// TestDeleteOfWhatIsNeeded: a needed checkpoint cannot be deleted, not even if
// it is the parent of the next save.
func TestDeleteOfWhatIsNeeded(t *testing.T) {
	t.Parallel()
	s := openGuarded(t)
	first := s.save(t, ckpt.KindRoutine)
	before := s.save(t, ckpt.KindPreOperation)
	s.operate(t, "deploy", before, ckpt.OperationOpen)
	_, err := s.store.Delete(t.Context(), ann, before.ID)
	wantCode(t, err, ckpt.CodeConflict)
	s.want(t, first, before)
	s.change(t, `UPDATE operations SET status = 'failed'`)
	if _, err := s.store.Delete(t.Context(), ann, before.ID); err != nil {
		t.Fatal(err)
	}
	s.want(t, first)
	if next := s.save(t, ckpt.KindRoutine); string(next.Parent) != first.ID {
		t.Errorf("after the head was deleted the next save comes from %q", next.Parent)
	}
}

func TestForkLetsGo(t *testing.T) {
	t.Parallel()
	s := openGuarded(t)
	from := s.save(t, ckpt.KindRoutine)
	s.change(t, `INSERT INTO runs (agent_id, name, started_at, updated_at, forked_from, head)
		SELECT agent_id, 'fork', started_at, updated_at, ?1, ?1 FROM runs`, from.ID)
	var list []*ckpt.Saved
	for range 4 {
		list = append(list, s.save(t, ckpt.KindRoutine))
	}
	s.want(t, append([]*ckpt.Saved{from}, list[1:]...)...)
	r := request("a", ckpt.KindRoutine, `1`)
	r.Run = "fork"
	forked, err := s.store.Save(t.Context(), ann, r)
	if err != nil {
		t.Fatal(err)
	}
	if string(forked.Parent) != from.ID {
		t.Errorf("the fork's first checkpoint comes from %q", forked.Parent)
	}
	wantPruned(t, forked, from)
	s.want(t, append(list[1:], forked)...)
}

func TestBudgetTrims(t *testing.T) {
	t.Parallel()
	s := openGuarded(t)
	p := ckpt.DefaultPolicy()
	p.RoutineKeep, p.MaxBytes = 0, 10_000
	if _, err := s.store.SetPolicy(t.Context(), ann, "a", p); err != nil {
		t.Fatal(err)
	}
	before := save(t, s.store, ann, "a", ckpt.KindPreOperation, `0`)
	var list []*ckpt.Saved
	for i := range 20 {
		list = append(list, save(t, s.store, ann, "a", ckpt.KindRoutine, fmt.Sprintf(`"%d%s"`, i%10, strings.Repeat("x", 997))))
	}
	if r := s.once(t); r.Removed != 11 || len(r.Unmet) > 0 {
		t.Fatalf("%+v", r)
	}
	s.want(t, append([]*ckpt.Saved{before}, list[11:]...)...)
	p.MaxBytes = 100 // no budget removes the rollback target or what an operation may need
	if _, err := s.store.SetPolicy(t.Context(), ann, "a", p); err != nil {
		t.Fatal(err)
	}
	if r := s.once(t); r.Removed != 8 || len(r.Unmet) != 1 {
		t.Fatalf("%+v", r)
	}
	s.want(t, before, list[19])
	sound(t, s.path)
}

func TestEndedRunGoesAfterThirtyDays(t *testing.T) {
	t.Parallel()
	s := openGuarded(t)
	kept := s.save(t, ckpt.KindRoutine)
	r := request("a", ckpt.KindRoutine, `1`)
	r.Run = "job"
	var list []*ckpt.Saved
	for _, r.Kind = range []ckpt.Kind{ckpt.KindRoutine, ckpt.KindRoutine, ckpt.KindRoutine} {
		c, err := s.store.Save(t.Context(), ann, r)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, c)
	}
	now := ckpt.At(s.clocks.Wall())
	s.change(t, `UPDATE runs SET status = 'completed', ended_at = ?, updated_at = ? WHERE name = 'job'`, now, now)
	s.change(t, `INSERT INTO events (run_id, seq, at, type, payload) SELECT id, 1, ended_at, 'note', '{}' FROM runs WHERE name = 'job'`)
	s.change(t, `UPDATE runs SET last_event = 1 WHERE name = 'job'`)
	s.clocks.pass(30*ckpt.Day - time.Millisecond)
	if r := s.once(t); r.Removed+r.Dropped > 0 {
		t.Fatalf("%+v", r)
	}
	s.want(t, append([]*ckpt.Saved{kept}, list...)...)
	s.clocks.pass(time.Millisecond)
	if r := s.once(t); r.Removed != 3 || r.Dropped != 1 {
		t.Fatalf("%+v", r)
	}
	s.want(t, kept)
	reader := auditor(t, s.path)
	defer reader.Close()
	if left, err := column(reader, `SELECT run FROM audit_runs UNION ALL SELECT type FROM audit_events`); err != nil || !slices.Equal(left, []string{"main"}) {
		t.Errorf("left are %v, %v", left, err)
	}
	sound(t, s.path)
}

func TestKeysExpire(t *testing.T) {
	t.Parallel()
	s := openGuarded(t)
	r := request("a", ckpt.KindRoutine, `1`)
	r.IdempotencyKey = "k"
	first, err := s.store.Save(t.Context(), ann, r)
	if err != nil {
		t.Fatal(err)
	}
	again := func() *ckpt.Saved {
		t.Helper()
		c, err := s.store.Save(t.Context(), ann, r)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	s.clocks.pass(7 * ckpt.Day)
	s.once(t)
	if c := again(); !c.Replayed || c.ID != first.ID {
		t.Fatalf("after seven days the key is forgotten: %+v", c)
	}
	s.clocks.pass(time.Millisecond)
	if r := s.once(t); r.Expired != 1 {
		t.Fatalf("%+v", r)
	}
	if c := again(); c.Replayed || c.ID == first.ID || c.Seq != 2 {
		t.Fatalf("the key is still known: %+v", c)
	}
	r.ID, r.IdempotencyKey = first.ID, ""
	_, err = s.store.Save(t.Context(), ann, r)
	wantCode(t, err, ckpt.CodeIdempotencyMismatch) // the key is forgotten, but the checkpoint exists
}
