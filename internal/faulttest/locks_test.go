//go:build linux

package faulttest

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

func init() {
	f31Store := elsewhere(map[string]string{"db": "TestLocksThatFail|TestTheHolder.*|TestAWriterThatIsGivenUp|TestOwnReadLock.*|TestLockHeld.*"}, 1)
	addRow("F31", "locks that fail or never come free", true, func(t *testing.T) {
		if !isShort() {
			t.Setenv("FAULTTEST_ALL_POINTS", "1")
		}
		t.Run("the store", f31Store)
		t.Run("never free", TestLockThatNeverComesFree)
		last := 12
		if isShort() {
			last = 6
		}
		t.Run("failing", func(t *testing.T) { failingLocks(t, last) })
	})
}

// TestLockThatNeverComesFree is F31: another program takes the write lock and keeps it. Saves are answered with
// busy in bounded time. The daemon is not ready and reports which process holds the lock. After limits.stuck_after
// it ends itself, no matter how many attempts it has made.
func TestLockThatNeverComesFree(t *testing.T) {
	beside(t)
	needSqlite(t)
	d, h := NewDaemon(t, "--set", "limits.write_timeout=500ms", "--set", "limits.stuck_after=5s"), NewHistory()
	d.Start()
	c := d.Client()
	keepAll(t, c, "agent-0")
	_, err := h.Save(context.Background(), c, newSave(t, "agent-0"))
	must(t, err)
	must(t, c.Ready(t.Context()))
	unlock := lockDatabase(t, d.DB)
	took := d.lockedOut(h)
	if err := c.Ready(t.Context()); err == nil || ckpt.CodeOf(err) != ckpt.CodeBusy || !strings.Contains(err.Error(), "sqlite3 (pid ") {
		t.Errorf("while saves are refused the probe of readiness says %v", err)
	}
	began := time.Now()
	code, err := d.Wait(startTime + 10*time.Second)
	note(t, "busy after %v, ended %v after that", took.Round(time.Millisecond), time.Since(began).Round(time.Millisecond))
	if err != nil || code != exitFault || !strings.Contains(d.Log(), "sqlite3 (pid ") {
		t.Errorf("exit code %d, %v, not %d with the name of the program", code, err, exitFault)
	}
	unlock()
	d.Start()
	must(t, d.Client().Ready(t.Context()))
	_, err = h.SaveUntilAnswered(context.Background(), d.Client(), newSave(t, "agent-0"))
	must(t, err)
	h.Check(t, d.Client, "agent-0")
	count(t, figures{rounds: 1})
	d.Stop()
	d.Verify()
}

// failingLocks makes one call of each thread fail while the database is being locked. Either everything continues,
// or the daemon ends itself at once and a fresh one saves. The daemon never stays up in a state where it is ready
// but refuses.
func failingLocks(t *testing.T, last int) {
	var ended atomic.Int64
	t.Cleanup(func() { note(t, "%d of %d calls that failed ended the daemon", ended.Load(), last) })
	for n := 1; n <= last; n++ {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			t.Parallel() // SQLite waits ten seconds before it gives up such a lock
			if failingLock(t, n) {
				ended.Add(1)
			}
			count(t, figures{points: 1})
		})
	}
}

// failingLock makes the n-th call of each thread fail, and returns whether that ended the daemon.
func failingLock(t *testing.T, n int) (ended bool) {
	t.Helper()
	d, h := NewDaemon(t, "--set", "limits.write_timeout=500ms"), NewHistory()
	d.Start()
	c := d.Client()
	keepAll(t, c, "agent-0")
	end := d.disturb("-e", "trace=fcntl", "-e", fmt.Sprintf("inject=fcntl:error=ENOLCK:when=%d", n))
	refused := 0
	for range 8 {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		_, err := h.Save(ctx, c, newSave(t, "agent-0"))
		cancel()
		if err == nil {
			refused = 0
			continue
		}
		if refused++; !d.Running() || c.Ready(t.Context()) != nil {
			break
		}
	}
	if refused > 2 {
		t.Errorf("ENOLCK at call %d: %d saves in a row were refused, and the daemon says that it is ready", n, refused)
	}
	if refused > 0 && d.Running() {
		_, _ = d.Wait(startTime)
	}
	end()
	r := newSave(t, "agent-0")
	for { // if the failed call was in another thread, the daemon ends a little later
		if !d.Running() {
			ended = true
			if code := d.exitCode(); code != exitFault || strings.Contains(d.Log(), "another program") {
				t.Errorf("ENOLCK at call %d: exit code %d\n%s", n, code, tail(d.Log(), 1000))
			}
			d.Start()
		}
		ctx, cancel := context.WithTimeout(t.Context(), startTime)
		_, err := h.SaveUntilAnswered(ctx, d.Client(), r)
		cancel()
		if err == nil {
			break
		}
		if d.Running() {
			t.Fatal(err)
		}
	}
	h.Check(t, d.Client, "agent-0")
	d.Stop()
	d.Verify()
	return ended
}
