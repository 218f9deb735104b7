package db_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/expect"
)

// TestTheHolderOfALockIsNamed: another program holds the write lock. A refused client is told which program it is.
// Meanwhile the store is not ready and says so. The first round of maintenance after the release finds that all is
// well.
func TestTheHolderOfALockIsNamed(t *testing.T) {
	t.Parallel()
	o := options(filepath.Join(t.TempDir(), "ckpt.db"), newClock())
	o.WriteTimeout = 200 * time.Millisecond
	s := openWith(t, o)
	save(t, s, ann, "a", ckpt.KindRoutine, `1`)
	must(t, s.Ready(t.Context()))
	sh := sqlite3Shell(t, o.Path, "BEGIN IMMEDIATE;")
	name := fmt.Sprintf("sqlite3 (pid %d)", sh.cmd.Process.Pid)
	for range 2 {
		_, err := s.Save(t.Context(), ann, request("a", ckpt.KindRoutine, `2`))
		wantCode(t, err, ckpt.CodeBusy)
		if !strings.Contains(err.Error(), name) {
			t.Errorf("the answer does not name %s: %v", name, err)
		}
	}
	err := s.Ready(t.Context())
	wantCode(t, err, ckpt.CodeBusy)
	if !strings.Contains(err.Error(), name) {
		t.Errorf("not ready because: %v", err)
	}
	if state, problems := s.Health(); state != "degraded" || !strings.Contains(strings.Join(problems, " "), name) {
		t.Errorf("status says %s, %q", state, problems)
	}
	first := s.Behind()
	s.Tick(time.Now())
	if again := s.Behind(); first <= 0 || again <= first {
		t.Errorf("to try again counted as progress: behind for %v, then %v", first, again)
	}
	sh.close()
	s.Tick(time.Now())
	must(t, s.Ready(t.Context()))
	if behind := s.Behind(); behind != 0 {
		t.Errorf("behind for %v, with the lock free", behind)
	}
	save(t, s, ann, "a", ckpt.KindRoutine, `3`)
}

// TestAWriterThatIsGivenUp: the writer stops for good, answers the waiting clients, and leaves no marker for a
// check, because only its locks were at fault.
func TestAWriterThatIsGivenUp(t *testing.T) {
	t.Parallel()
	o := options(filepath.Join(t.TempDir(), "ckpt.db"), newClock())
	o.WriteTimeout = time.Minute
	s := openWith(t, o)
	first := save(t, s, ann, "a", ckpt.KindRoutine, `1`)
	sh := sqlite3Shell(t, o.Path, "BEGIN IMMEDIATE;")
	defer sh.close()
	answer := make(chan error)
	go func() {
		_, err := s.Save(t.Context(), ann, request("a", ckpt.KindRoutine, `2`))
		answer <- err
	}()
	expect.Soon(t, "the save to wait", func() bool { return s.LockedFor() > 0 })
	s.GiveUp(time.Minute)
	err := <-answer
	wantCode(t, err, ckpt.CodeBusy)
	if e := ckpt.AsError(err); e.OutcomeOrDefault() != ckpt.OutcomeNotSaved {
		t.Errorf("the answer: %+v", e)
	}
	if err := s.Fault(); err == nil || !strings.Contains(err.Error(), "sqlite3 (pid ") {
		t.Errorf("the fault: %v", err)
	}
	if err := s.Ready(t.Context()); err == nil {
		t.Error("the store says that it is ready")
	}
	sh.close()
	must(t, s.Close())
	if left, _ := filepath.Glob(o.Path + ".failed"); len(left) > 0 {
		t.Error("a marker has the next start check what is not in doubt")
	}
	s = openWith(t, options(o.Path, newClock()))
	_, err = s.Checkpoint(t.Context(), ann, first.ID, true)
	must(t, err)
	save(t, s, ann, "a", ckpt.KindRoutine, `3`)
}

// TestLocksThatFail makes one call fail while the database is being locked (ENOLCK). Either saves continue, or the
// store stops at once and says that its own locks are at fault. It never blames another program, and never stays up
// while refusing.
func TestLocksThatFail(t *testing.T) {
	t.Parallel()
	expect.OneThread(t)
	var ran, stopped atomic.Int64
	faults, from, to := []string{"ENOLCK"}, 70, 85 // the calls of two saves and some more
	if *long || os.Getenv(allPoints) != "" {
		faults, from, to = []string{"ENOLCK", "EDEADLK"}, 1, 110
	}
	t.Cleanup(func() { // after all of them have ended
		t.Logf("stopped %d times", stopped.Load())
		if stopped.Load() == 0 && ran.Load() > 0 {
			t.Error("no fault met a lock that matters")
		}
	})
	for _, fault := range faults {
		for n := from; n < to; n++ {
			t.Run(fmt.Sprint(fault, n), func(t *testing.T) {
				t.Parallel()
				path := closedDatabase(t)
				said := underStraceAs(t, "locks", path, "fcntl", fmt.Sprintf("fcntl:error=%s:when=%d", fault, n))
				ran.Add(1)
				t.Log(said)
				if len(said) == 0 || has(said, "open ") { // the fault hit the start
					return
				}
				refused := 0
				for _, line := range said {
					if strings.HasPrefix(line, "not_saved") {
						refused++
					}
					if strings.Contains(line, "another program") {
						t.Errorf("another program is blamed: %s", line)
					}
				}
				if failed := has(said, "failed"); failed {
					stopped.Add(1)
				} else if refused > 1 {
					t.Errorf("%d saves were refused, and the store went on", refused)
				}
				holdTo(t, path, said)
			})
		}
	}
}
