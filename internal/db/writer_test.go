package db_test

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db"
	"github.com/ckptsidecar/ckptsidecar/internal/expect"
)

type execFunc = func(query string, args ...any) error

// blocked holds the writer with an operation until release is called, so that a
// test decides what waits behind it.
func blocked(t *testing.T, s *db.Store) (release func()) {
	t.Helper()
	held, free, ended := make(chan bool), make(chan bool), make(chan error, 1)
	go func() {
		ended <- s.Write("uid:9", 0, func(execFunc) error { close(held); <-free; return nil })
	}()
	<-held
	return sync.OnceFunc(func() {
		close(free)
		must(t, <-ended)
	})
}

// queue starts an operation and returns once it waits.
func queue(t *testing.T, s *db.Store, wg *sync.WaitGroup, owner string, apply func(execFunc) error, end func(error)) {
	t.Helper()
	before := s.Waiting()
	wg.Go(func() { end(s.Write(owner, 1, apply)) })
	expect.Soon(t, "the operation to wait", func() bool { return s.Waiting() > before })
}

// TestFloodDelaysOthersByOne: one owner queues a flood before another owner
// makes a single write. Only one operation of the flood is done before it, and
// the flood keeps its order.
func TestFloodDelaysOthersByOne(t *testing.T) {
	t.Parallel()
	s, _ := open(t)
	release := blocked(t, s)
	defer release()
	var wg sync.WaitGroup
	var mu sync.Mutex
	var order []string
	note := func(name string) func(execFunc) error {
		return func(execFunc) error { mu.Lock(); defer mu.Unlock(); order = append(order, name); return nil }
	}
	const flood = db.MaxBatch + 20
	var want []string
	for i := range flood {
		want = append(want, fmt.Sprint(i))
		queue(t, s, &wg, "uid:1", note(fmt.Sprint(i)), func(err error) { must(t, err) })
	}
	queue(t, s, &wg, "uid:2", note("other"), func(err error) { must(t, err) })
	release()
	wg.Wait()
	if at := slices.Index(order, "other"); at != 1 {
		t.Errorf("the other owner's write came at place %d", at)
	}
	order = slices.DeleteFunc(order, func(s string) bool { return s == "other" })
	if diff := cmp.Diff(want, order); diff != "" {
		t.Errorf("the flood's order:\n%s", diff)
	}
}

// TestFullQueueAnswersAtOnce: the queue is bounded by operations and by bytes.
func TestFullQueueAnswersAtOnce(t *testing.T) {
	t.Parallel()
	o := options(filepath.Join(t.TempDir(), "ckpt.db"), newClock())
	o.MaxWaiting, o.MaxWaitBytes = 3, 1000
	o.WriteTimeout = time.Hour // a client that waited instead of being refused would wait forever
	s := openWith(t, o)
	release := blocked(t, s)
	defer release()
	var wg sync.WaitGroup
	nothing := func(execFunc) error { return nil }
	for range 2 {
		queue(t, s, &wg, "uid:1", nothing, func(err error) { must(t, err) })
	}
	err := s.Write("uid:2", 999, nothing) // 2 bytes wait: one too many
	wantCode(t, err, ckpt.CodeBusy)
	queue(t, s, &wg, "uid:2", nothing, func(err error) { must(t, err) })
	err = s.Write("uid:3", 0, nothing)
	wantCode(t, err, ckpt.CodeBusy)
	e := ckpt.AsError(err)
	if e.OutcomeOrDefault() != ckpt.OutcomeNotSaved || e.RetryAfter == 0 || !e.Retryable() {
		t.Errorf("the answer of a full queue: %+v", e)
	}
	release()
	wg.Wait()
	must(t, s.Write("uid:3", 1000, nothing)) // exactly the limit
}

// TestLateRefusalHarmsNobodyElse: an operation that refuses after it has
// written is rolled back, and only that one. The refusal is recorded.
func TestLateRefusalHarmsNobodyElse(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "ckpt.db")
	s := openWith(t, options(path, newClock()))
	release := blocked(t, s)
	defer release()
	var wg sync.WaitGroup
	put := func(key string, then error) func(execFunc) error {
		return func(exec execFunc) error {
			if err := exec(`INSERT INTO meta (key, value) VALUES (?, 'x')`, key); err != nil {
				return err
			}
			return then
		}
	}
	queue(t, s, &wg, "uid:1", put("one", nil), func(err error) { must(t, err) })
	queue(t, s, &wg, "uid:2", put("two", ckpt.Errorf(ckpt.CodeConflict, "too late")), func(err error) {
		if ckpt.CodeOf(err) != ckpt.CodeConflict {
			t.Errorf("the refusal became %v", err)
		}
	})
	queue(t, s, &wg, "uid:3", put("three", nil), func(err error) { must(t, err) })
	release()
	wg.Wait()
	if got := sqlite3(t, path, `SELECT group_concat(key, ' ') FROM (SELECT key FROM meta WHERE value = 'x' ORDER BY key)`); got != "one three" {
		t.Errorf("there is %q", got)
	}
	if got := sqlite3(t, path, `SELECT outcome || ' ' || reason FROM audit_log WHERE who = 'uid:2'`); got != "conflict too late" {
		t.Errorf("the refusal is recorded as %q", got)
	}
	sound(t, path)
}

// TestConstraintIsTheRequestsFault: a violated constraint gives conflict, and
// the other operations succeed.
func TestConstraintIsTheRequestsFault(t *testing.T) {
	t.Parallel()
	s, _ := open(t)
	release := blocked(t, s)
	defer release()
	var wg sync.WaitGroup
	for i := range 3 {
		queue(t, s, &wg, fmt.Sprint(i), func(exec execFunc) error {
			if i == 1 {
				return exec(`INSERT INTO audit_links (n, hash) VALUES (1, NULL)`)
			}
			return nil
		}, func(err error) {
			if want := map[bool]ckpt.Code{true: ckpt.CodeConflict}[i == 1]; ckpt.CodeOf(err) != want {
				t.Errorf("operation %d: %v", i, err)
			}
		})
	}
	release()
	wg.Wait()
}

// TestBugIsAnsweredAndSurvived runs operations with faulty SQL and with a
// panic. Both are refused as internal errors, and the writer continues.
func TestBugIsAnsweredAndSurvived(t *testing.T) {
	t.Parallel()
	s, _ := open(t)
	err := s.Write("uid:1", 0, func(exec execFunc) error { return exec(`UPDATE nonsense SET x = 1`) })
	wantCode(t, err, ckpt.CodeInternal)
	err = s.CrashWriter("out of range")
	wantCode(t, err, ckpt.CodeInternal)
	if e := ckpt.AsError(err); e.OutcomeOrDefault() != ckpt.OutcomeNotSaved || strings.Contains(e.Message, "out of range") {
		t.Errorf("a panic was answered with %+v", e)
	}
	save(t, s, ann, "a", ckpt.KindRoutine, `1`)
}

// TestCloseUnderLoadAnswersEverybody closes the store while many clients save:
// each gets an answer, and every acknowledged save is there.
func TestCloseUnderLoadAnswersEverybody(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "ckpt.db")
	s := openWith(t, options(path, newClock()))
	var wg sync.WaitGroup
	acknowledged := make([]int, 12)
	var all, agents atomic.Int64
	for w := range acknowledged {
		wg.Go(func() {
			for {
				_, err := s.Save(t.Context(), ann, request(fmt.Sprintf("a%d", w), ckpt.KindRecovery, `1`))
				if err != nil {
					if ckpt.CodeOf(err) != ckpt.CodeBusy {
						t.Errorf("while closing: %v", err)
					}
					return
				}
				if acknowledged[w]++; acknowledged[w] == 1 {
					agents.Add(1)
				}
				all.Add(1)
			}
		})
	}
	expect.Soon(t, "many saves, and one of each agent", func() bool {
		return all.Load() > 100 && agents.Load() == int64(len(acknowledged)) || t.Failed()
	})
	must(t, s.Close())
	wg.Wait()
	s = openWith(t, options(path, newClock()))
	for w, want := range acknowledged {
		if got := len(seqs(t, s, ann, fmt.Sprintf("a%d", w))); got != want {
			t.Errorf("agent %d has %d of %d", w, got, want)
		}
	}
	sound(t, path)
}

// TestAWriterThatStandsStillIsSeen: a stuck writer is noticed. An idle writer
// and a working one do not count as stuck.
func TestAWriterThatStandsStillIsSeen(t *testing.T) {
	t.Parallel()
	s, _ := open(t)
	save(t, s, ann, "a", ckpt.KindRoutine, "1")
	if stalled := s.Stalled(); stalled != 0 {
		t.Errorf("an idle writer has stood still for %v", stalled)
	}
	release := blocked(t, s)
	expect.Soon(t, "the writer to be seen standing still", func() bool { return s.Stalled() > 50*time.Millisecond })
	release()
	expect.Soon(t, "the writer to be idle again", func() bool { return s.Stalled() == 0 })
}
