//go:build linux

package faulttest

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func init() {
	addRow("F33", "lock, reserve or socket taken away", true, func(t *testing.T) {
		t.Run("the store", elsewhere(map[string]string{"db": "TestDisturbedReserve|TestDisturbedFiles.*"}, 2))
		t.Run("the daemon", TestTakenAway)
	})
}

const exitFault = 74

// TestTakenAway is F33: somebody removes the lock file, the socket or its folder under the daemon. The daemon notices and
// ends itself before a second one could share its database, and the next start puts everything right. A reserve that is
// removed is made anew.
func TestTakenAway(t *testing.T) {
	for name, away := range map[string]struct {
		remove func(d *Daemon) error
		says   string
	}{
		"lock file":     {func(d *Daemon) error { return os.Remove(d.DB + ".lock") }, "lock file"},
		"socket":        {func(d *Daemon) error { return os.Remove(d.Socket) }, "the socket"},
		"socket folder": {func(d *Daemon) error { return os.RemoveAll(filepath.Dir(d.Socket)) }, "the socket"},
	} {
		t.Run(name, func(t *testing.T) {
			d, h := NewDaemon(t), NewHistory()
			d.Start()
			keepAll(t, d.Client(), "agent-0")
			_, err := h.Save(context.Background(), d.Client(), newSave(t, "agent-0"))
			must(t, err)
			must(t, away.remove(d))
			began := time.Now()
			code, err := d.Wait(startTime)
			note(t, "%s: noticed and ended after %v", name, time.Since(began).Round(time.Millisecond))
			if err != nil || code != exitFault || !strings.Contains(d.Log(), away.says) {
				t.Fatalf("exit code %d, %v, not %d with a word about the %s", code, err, exitFault, name)
			}
			d.Start()
			h.Check(t, d.Client, "agent-0")
			count(t, figures{rounds: 1})
			d.Stop()
			d.Verify()
		})
	}
	t.Run("reserve", func(t *testing.T) {
		d := NewDaemon(t)
		d.Start()
		reserve := d.DB + "-reserve"
		size := fileSize(reserve)
		must(t, os.Remove(reserve))
		for began := time.Now(); fileSize(reserve) < size; time.Sleep(10 * time.Millisecond) {
			if time.Since(began) > startTime || !d.Running() {
				t.Fatalf("the reserve has %d bytes, not %d", fileSize(reserve), size)
			}
		}
		count(t, figures{rounds: 1})
		d.Stop()
	})
}
