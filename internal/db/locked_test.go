package db_test

import (
	"bufio"
	"fmt"
	"io"
	"log/slog"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db"
	"github.com/ckptsidecar/ckptsidecar/internal/expect"
)

// shell is the real sqlite3 command, kept open.
type shell struct {
	in  io.WriteCloser
	cmd *exec.Cmd
	out *bufio.Scanner

	close func() // ends the command; may be called again
}

// sqlite3Shell opens the command on a database and runs statements.
func sqlite3Shell(t testing.TB, path, statements string, args ...string) *shell {
	t.Helper()
	cmd := tool(t, "sqlite3", append(args, path)...)
	in, err := cmd.StdinPipe()
	must(t, err)
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	sh := &shell{in: in, cmd: cmd, out: bufio.NewScanner(out)}
	sh.close = sync.OnceFunc(sh.end)
	t.Cleanup(sh.close)
	_, err = io.WriteString(in, statements+"\n.system echo done\n")
	must(t, err)
	for sh.out.Scan() && sh.out.Text() != "done" {
	}
	return sh
}

func (sh *shell) end() {
	_ = sh.in.Close()
	for sh.out.Scan() {
	}
	_ = sh.cmd.Wait()
}

// TestLockHeldForAWhile: another process holds the write lock for a while. The
// save waits and succeeds, and the audit log says that it had to try again.
func TestLockHeldForAWhile(t *testing.T) {
	t.Parallel()
	o := options(filepath.Join(t.TempDir(), "ckpt.db"), newClock())
	o.WriteTimeout = time.Hour
	s := openWith(t, o)
	save(t, s, ann, "a", ckpt.KindRoutine, `1`)
	sh := sqlite3Shell(t, o.Path, "BEGIN IMMEDIATE;")
	saved := make(chan error)
	go func() {
		_, err := s.Save(t.Context(), ann, request("a", ckpt.KindRoutine, `2`))
		saved <- err
	}()
	expect.Soon(t, "the save to wait", func() bool { return s.LockedFor() > 0 })
	sh.close()
	must(t, <-saved)
	page, err := s.Audit(t.Context(), ann, ckpt.AuditFilter{Agent: "a"})
	must(t, err)
	if last := page.Audit[len(page.Audit)-1]; last.Retries == 0 {
		t.Errorf("the audit row says nothing of retries: %+v", last)
	}
}

// TestLockHeldTooLong: the save gets busy in bounded time, nothing is saved,
// reads work meanwhile, and saves succeed again without help.
func TestLockHeldTooLong(t *testing.T) {
	t.Parallel()
	o := options(filepath.Join(t.TempDir(), "ckpt.db"), newClock())
	o.WriteTimeout = 500 * time.Millisecond
	var log lockedBuffer
	o.Log = slog.New(slog.NewTextHandler(&log, nil))
	s := openWith(t, o)
	first := save(t, s, ann, "a", ckpt.KindRoutine, `1`)
	sh := sqlite3Shell(t, o.Path, "BEGIN IMMEDIATE;")
	begin := time.Now()
	r := request("a", ckpt.KindRoutine, `2`)
	r.ID = newID(t)
	_, err := s.Save(t.Context(), ann, r)
	wantCode(t, err, ckpt.CodeBusy)
	if e := ckpt.AsError(err); e.OutcomeOrDefault() != ckpt.OutcomeNotSaved || !e.Retryable() || e.RetryAfter == 0 {
		t.Errorf("the answer: %+v", e)
	}
	if took := time.Since(begin); took < o.WriteTimeout/5 {
		t.Errorf("busy was answered after %s", took)
	}
	if c, err := s.Checkpoint(t.Context(), ann, first.ID, true); err != nil || string(c.State) != `1` {
		t.Errorf("a read while the lock is held: %v", err)
	}
	wantCode(t, s.Ready(t.Context()), ckpt.CodeBusy)
	_, err = s.Save(t.Context(), ann, r)
	wantCode(t, err, ckpt.CodeBusy)
	if n := strings.Count(log.String(), "a write was refused"); n != 1 { // one line a minute
		t.Errorf("%d lines of the log are about it:\n%s", n, log.String())
	}
	sh.close()
	again, err := s.Save(t.Context(), ann, r)
	must(t, err)
	if again.Replayed || again.Seq != 2 {
		t.Errorf("the save that was refused had left something: %+v", again)
	}
	must(t, s.Ready(t.Context()))
}

// TestWaitingInTheQueueCounts: a client that arrives while another one waits
// for the lock gets its answer together with that one. Its timeout does not
// start over.
func TestWaitingInTheQueueCounts(t *testing.T) {
	t.Parallel()
	o := options(filepath.Join(t.TempDir(), "ckpt.db"), newClock())
	o.WriteTimeout = 3 * time.Second
	s := openWith(t, o)
	save(t, s, ann, "a", ckpt.KindRoutine, `1`)
	sh := sqlite3Shell(t, o.Path, "BEGIN IMMEDIATE;")
	defer sh.close()
	ended := make(chan time.Time, 2)
	for agent := range 2 {
		go func() {
			_, _ = s.Save(t.Context(), ann, request(fmt.Sprintf("agent%d", agent), ckpt.KindRoutine, `2`))
			ended <- time.Now()
		}()
		expect.Soon(t, "the first to wait for the lock, and the second behind it", func() bool { return s.LockedFor() > 0 && s.Waiting() >= agent })
	}
	first := <-ended
	if apart := (<-ended).Sub(first); apart > 2*time.Second {
		t.Errorf("the second was told %v after the first", apart)
	}
}

// TestOpenWhileLocked: a start waits for the lock, for a bounded time.
func TestOpenWhileLocked(t *testing.T) {
	t.Parallel()
	path := closedDatabase(t)
	sh := sqlite3Shell(t, path, "BEGIN IMMEDIATE;")
	o := options(path, newClock())
	o.WriteTimeout = 300 * time.Millisecond
	_, err := db.Open(t.Context(), o)
	wantCode(t, err, ckpt.CodeBusy)
	time.AfterFunc(500*time.Millisecond, sh.close)
	o.WriteTimeout = 5 * time.Second
	openWith(t, o)
}

// TestRecoveryWaitsForReaders: if an auditor reads during the start after a
// fault, the daemon must not become read-only.
func TestRecoveryWaitsForReaders(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "ckpt.db")
	s := openWith(t, options(path, newClock()))
	save(t, s, ann, "a", ckpt.KindRoutine, `1`)
	sh := sqlite3Shell(t, path, "BEGIN; SELECT count(*) FROM checkpoints;", "-readonly")
	save(t, s, ann, "a", ckpt.KindRoutine, `2`)
	must(t, s.Close())
	must(t, db.MarkFailed(path))
	time.AfterFunc(300*time.Millisecond, sh.close)
	s = openWith(t, options(path, newClock()))
	if err := s.Ready(t.Context()); err != nil {
		t.Error(err)
	}
	save(t, s, ann, "a", ckpt.KindRoutine, `3`)
}

// lockedBuffer is a log that several goroutines write.
type lockedBuffer struct {
	mu sync.Mutex
	b  strings.Builder
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}
