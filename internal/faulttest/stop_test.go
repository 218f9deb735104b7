//go:build unix

package faulttest

import (
	"syscall"
	"testing"
	"time"
)

// TestStopUnderLoad is F22: if the daemon stops under load, every client gets
// an answer or a closed connection, and nothing is lost.
func TestStopUnderLoad(t *testing.T) {
	beside(t)
	d := NewDaemon(t)
	d.Start()
	h, load := NewHistory(), newLoad(t, d, 16)
	load.pause = 0
	load.start(h)
	load.reach(200)
	code, took := d.Stop()
	stopped := time.Now()
	t.Logf("stopped under 16 clients in %v with exit code %d after %d acknowledged saves", took.Round(time.Millisecond), code, load.acked.Load())
	if code != 0 || took > slack(5*time.Second) {
		t.Errorf("the stop took %v and ended with exit code %d", took, code)
	}
	for h.InFlightSince(stopped) > 0 {
		if time.Since(stopped) > slack(5*time.Second) {
			t.Fatalf("%d clients still wait 5 s after the end of the daemon", h.InFlightSince(stopped))
		}
		time.Sleep(5 * time.Millisecond)
	}
	d.Start()
	load.goesOn(load.acked.Load(), "after the restart")
	load.finish()
	n := h.Sum()
	t.Logf("the longest try took %v; %d saves were told an unknown outcome and asked again, %d of them had been saved", n.Longest.Round(time.Millisecond), n.Unknown, n.Replayed)
	if n.Replayed > 0 { // a save that came too late for an answer must not be saved either
		t.Errorf("%d saves were on disk when the daemon stopped, and nobody was told", n.Replayed)
	}
	if n.Longest > slack(5*time.Second) {
		t.Errorf("somebody waited %v for an answer", n.Longest)
	}
	h.Check(t, d.Client, load.agents...)
	d.Audit()
	d.Stop()
	d.Verify()
}

const writeTimeout = 10 * time.Second // the daemon's default

// TestFrozen is the other half of F22: after a daemon was frozen for a while,
// it continues where it was, and so do its clients.
func TestFrozen(t *testing.T) {
	beside(t)
	freeze(t, time.Second)
}

func freeze(t *testing.T, frozen time.Duration) {
	d := NewDaemon(t)
	d.Start()
	h, load := NewHistory(), newLoad(t, d, 8)
	load.start(h)
	load.reach(50)
	d.Signal(syscall.SIGSTOP)
	time.Sleep(frozen)
	before := load.acked.Load()
	d.Signal(syscall.SIGCONT)
	load.goesOn(before, "after the freeze")
	load.finish()
	n := h.Sum()
	t.Logf("frozen for %v: the longest try took %v, %d of %d saves were sent again", frozen, n.Longest.Round(time.Millisecond), n.Retried, n.Saves)
	told := n.Retried // a client that waited for all of write_timeout may get busy
	if frozen >= writeTimeout && told <= load.clients {
		told = 0
	}
	if told+n.Unanswered > 0 || n.Longest < frozen-100*time.Millisecond {
		t.Errorf("the freeze was not just waited for: %+v", n)
	}
	h.Check(t, d.Client, load.agents...)
	d.Audit()
	if code, _ := d.Stop(); code != 0 {
		t.Errorf("the daemon ended with exit code %d", code)
	}
	d.Verify()
}
