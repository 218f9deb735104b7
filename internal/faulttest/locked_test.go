//go:build unix

package faulttest

import (
	"context"
	"os/exec"
	"testing"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

// TestLockedDatabase is F15 over the socket: another process holds the write
// lock for a while, then for longer than a write may wait.
func TestLockedDatabase(t *testing.T) {
	beside(t)
	needSqlite(t)
	const long = time.Second
	d, h := NewDaemon(t), NewHistory()
	d.Start()
	keepAll(t, d.Client(), "agent-0")
	unlock := lockDatabase(t, d.DB)
	time.AfterFunc(long, unlock)
	began := time.Now()
	_, err := h.Save(context.Background(), d.Client(), newSave(t, "agent-0"))
	waited := time.Since(began)
	if err != nil || waited < long-500*time.Millisecond || waited > long+slack(2*time.Second) {
		t.Errorf("a save behind a lock of %v took %v: %v", long, waited, err)
	}
	d.Stop()
	d.Flags = []string{"--set", "limits.write_timeout=500ms"}
	d.Start()
	unlock = lockDatabase(t, d.DB)
	busy := d.lockedOut(h)
	_, err = d.Client().Latest(context.Background(), ckpt.CheckpointFilter{Agent: "agent-0"}, true)
	if err != nil {
		t.Errorf("reading while somebody writes: %v", err)
	}
	unlock()
	began = time.Now()
	_, err = h.SaveUntilAnswered(context.Background(), d.Client(), newSave(t, "agent-0"))
	t.Logf("a lock of %v delayed a save by %v; with a limit of 500 ms busy was answered after %v; after the end of the lock a save took %v",
		long, waited.Round(time.Millisecond), busy.Round(time.Millisecond), time.Since(began).Round(time.Millisecond))
	if err != nil || time.Since(began) > slack(5*time.Second) {
		t.Errorf("after the end of the lock: %v in %v", err, time.Since(began))
	}
	h.Check(t, d.Client, "agent-0")
	d.Audit()
	d.Stop()
	d.Verify()
}

// lockedOut saves while another process holds the lock, and returns how long
// the refusal took.
func (d *Daemon) lockedOut(h *History) time.Duration {
	d.t.Helper()
	began := time.Now()
	_, err := h.Save(context.Background(), d.Client(), newSave(d.t, "agent-0"))
	took := time.Since(began)
	e := ckpt.AsError(err)
	if err == nil || e.Code != ckpt.CodeBusy || e.OutcomeOrDefault() != ckpt.OutcomeNotSaved || e.RetryAfter <= 0 || took > 3*time.Second {
		d.t.Errorf("a save behind a long lock: %v, outcome %q, Retry-After %v, after %v", err, e.Outcome, e.RetryAfter, took)
	}
	return took
}

// lockDatabase takes the write lock with the sqlite3 command.
func lockDatabase(t *testing.T, db string) (unlock func()) {
	t.Helper()
	cmd := exec.Command("sqlite3", "-bail", "-cmd", ".timeout 10000", db)
	in, err := cmd.StdinPipe()
	must(t, err)
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	_, err = in.Write([]byte("BEGIN IMMEDIATE;\nSELECT 'locked';\n"))
	must(t, err)
	answer := make([]byte, len("locked\n"))
	if n, err := out.Read(answer); err != nil || string(answer[:n]) != "locked\n" {
		t.Fatalf("the lock was not taken: %q, %v", answer[:n], err)
	}
	unlock = func() {
		in.Close() // the command rolls back and ends
		_ = cmd.Wait()
	}
	t.Cleanup(unlock)
	return unlock
}
