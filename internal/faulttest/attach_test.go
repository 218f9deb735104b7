//go:build linux

package faulttest

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

func init() {
	addRow("F6", "checkpoint fsync error only", false, failedCopies)
	addRow("F13", "a lying disk: writes that are lost", true, lostWrites)
	addRow("F14", "a slow disk: 300 ms for each flush", true, slowDisk)
}

// disturb injects faults into the system calls of the running daemon until end
// is called or the daemon has ended.
func (d *Daemon) disturb(args ...string) (end func()) {
	t := d.t
	t.Helper()
	pid := d.PID()
	cmd := exec.Command(needStrace(t), append([]string{"-f", "-qq", "-o", "/dev/null", "-p", strconv.Itoa(pid)}, args...)...)
	var said bytes.Buffer
	cmd.Stderr = &said
	must(t, cmd.Start())
	for began := time.Now(); !traced(pid); time.Sleep(5 * time.Millisecond) {
		if time.Since(began) > 10*time.Second {
			_ = cmd.Process.Kill()
			t.Fatalf("strace does not attach: %s", &said)
		}
	}
	over := false
	end = func() {
		if !over {
			over = true
			_ = cmd.Process.Signal(os.Interrupt) // strace detaches
			_ = cmd.Wait()
		}
	}
	t.Cleanup(end)
	return end
}

// traced reports whether another process traces all threads of a process.
func traced(pid int) bool {
	threads, err := filepath.Glob("/proc/" + strconv.Itoa(pid) + "/task/*/status")
	for _, status := range threads {
		text, e := os.ReadFile(status)
		if e != nil || strings.Contains(string(text), "TracerPid:\t0\n") {
			return false
		}
	}
	return err == nil && len(threads) > 0
}

// failedCopies is F6: the write-ahead log cannot be copied into the database
// because its flush fails. Saves continue, status says why, and the log is
// bounded: when it grows too long, a fresh process takes over.
func failedCopies(t *testing.T) {
	d, h := NewDaemon(t), NewHistory()
	d.Start()
	c := d.Client()
	keepAll(t, c, "agent-0", "agent-1")
	end := d.disturb("-P", d.DB, "-e", "trace=fsync,fdatasync", "-e", "inject=fsync,fdatasync:error=EIO")
	degraded, longest, stopped := false, int64(0), time.Duration(0)
	began := time.Now()
	for n := 0; d.Running() && time.Since(began) < 4*time.Minute; n++ {
		r := newSave(t, "agent-0")
		r.ContentType, r.State = "application/octet-stream", noise(uint64(n), 1_000_000)
		_, err := h.Save(context.Background(), c, r)
		if info, e := os.Stat(d.DB + "-wal"); e == nil {
			longest = max(longest, info.Size())
		}
		if st, e := c.Status(context.Background()); err == nil && e == nil && st.State == "degraded" {
			degraded = true
		}
	}
	stopped = time.Since(began)
	code, err := d.Wait(startTime)
	end()
	if err != nil || code != 74 {
		t.Errorf("the daemon did not end itself with exit code 74: %d, %v", code, err)
	}
	note(t, "degraded: %t; the daemon ended itself after %v, the log had at most %d MiB", degraded, stopped.Round(time.Second), longest>>20)
	if !degraded || longest > 700<<20 {
		t.Errorf("degraded %t, the log had %d MiB", degraded, longest>>20)
	}
	d.Start()
	h.Check(t, d.Client, "agent-0")
	_, err = NewHistory().SaveUntilAnswered(t.Context(), d.Client(), newSave(t, "agent-1"))
	must(t, err)
	count(t, figures{rounds: 1})
	d.Stop()
	d.Verify()
}

// lostWrites is F13: the disk says that it has written, but it has not. The
// lost data cannot be recovered. The daemon must detect the loss, and must
// never serve other data in its place.
func lostWrites(t *testing.T) {
	rounds := 12
	if isShort() {
		rounds = 3
	}
	random, lies, after := newRand(t, 0), 0, 0
	for range rounds {
		d, h := NewDaemon(t), NewHistory()
		d.Start()
		keepAll(t, d.Client(), "agent-0")
		sent := map[string]*ckpt.SaveRequest{}
		save := func(n int) {
			r := newSave(t, "agent-0")
			r.ContentType, r.State = "application/octet-stream", noise(random.Uint64(), 500+n*700)
			sent[r.ID] = r
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			_, _ = h.Save(ctx, d.Client(), r) // the result does not matter: this disk lies
		}
		for n := range 10 {
			save(n)
		}
		end := d.disturb("-P", d.DB+"-wal", "-e", "trace=pwrite64", "-e", fmt.Sprintf("inject=pwrite64:retval=4096:when=%d+%d", 2+2*random.IntN(20), 24))
		for n := range 10 {
			save(n)
		}
		end()
		found := d.readLies(t, sent)
		if d.Running() {
			_ = d.signal(syscall.SIGTERM)
			_, _ = d.Wait(startTime)
		}
		again := d.readLies(t, sent) // what a fresh process serves of it
		d.Kill()
		lies, after = lies+found, after+again
		count(t, figures{rounds: 1, points: found})
		d.cleanUp()
	}
	note(t, "%d states were lost by the disk and refused while the daemon ran, %d by a fresh process; none was served as something else", lies, after)
	if lies == 0 {
		t.Error("no lost write was noticed")
	}
}

// readLies reads everything that was sent and returns how many checkpoints are
// not served. The daemon must not serve other bytes for any of them.
func (d *Daemon) readLies(t *testing.T, sent map[string]*ckpt.SaveRequest) (refused int) {
	if !d.Running() {
		if _, err := d.start(); err != nil { // the damage is so large that the start refuses it, which also counts as found
			return len(sent)
		}
	}
	for id, r := range sent {
		got, err := d.Client().State(context.Background(), id)
		switch {
		case err == nil && !bytes.Equal(got, r.State):
			t.Errorf("I1: another state of %s is served than was saved", id)
		case err != nil:
			refused++
		}
	}
	return refused
}

// slowDisk is F14: a slow disk does not end the daemon, and no client waits
// forever.
func slowDisk(t *testing.T) {
	d := NewDaemon(t)
	d.Start()
	h, load := NewHistory(), newLoad(t, d, 8)
	load.start(h)
	end := d.disturb("-e", "trace=fsync,fdatasync", "-e", "inject=fsync,fdatasync:delay_enter=300000")
	time.Sleep(5 * time.Second)
	before := load.acked.Load()
	end()
	load.goesOn(before, "a slow disk")
	load.finish()
	n := h.Sum()
	note(t, "the longest save took %v; %d were sent again", n.Longest.Round(time.Millisecond), n.Retried)
	if before == 0 || n.Longest > slack(10*time.Second) || n.Retried > 0 {
		t.Errorf("%d were saved while the disk was slow, the longest took %v, %d were sent again", before, n.Longest, n.Retried)
	}
	h.Check(t, d.Client, load.agents...)
	count(t, figures{rounds: 1})
	d.Audit()
	if code, _ := d.Stop(); code != 0 {
		t.Errorf("the daemon ended with exit code %d", code)
	}
	d.Verify()
}
