//go:build linux

package faulttest

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

func init() {
	f34Store := elsewhere(map[string]string{"db": "TestTheLogIsCut.*|TestTheFolderAfter.*|TestReserve"}, 2)
	addRow("F34", "what stays after a stop, and on a full disk", true, func(t *testing.T) {
		t.Run("the store", f34Store)
		t.Run("the daemon", TestTheFolderAfterAStop)
	})
	f33Store := elsewhere(map[string]string{"db": "TestDisturbedReserve|TestDisturbedFiles.*"}, 2)
	addRow("F33", "lock, reserve or socket taken away", true, func(t *testing.T) {
		t.Run("the store", f33Store)
		t.Run("the daemon", TestTakenAway)
	})
}

const exitFault = 74

// TestTakenAway is F33: another process removes the lock file, the socket or its folder while the daemon runs. The
// daemon notices and ends itself before a second daemon could share its database, and the next start repairs
// everything. A removed reserve is created again.
func TestTakenAway(t *testing.T) {
	beside(t)
	for name, away := range map[string]struct {
		remove func(d *Daemon) error
		says   string
	}{
		"lock file":     {func(d *Daemon) error { return os.Remove(d.DB + ".lock") }, "lock file"},
		"socket":        {func(d *Daemon) error { return os.Remove(d.Socket) }, "the socket"},
		"socket folder": {func(d *Daemon) error { return os.RemoveAll(filepath.Dir(d.Socket)) }, "the socket"},
	} {
		t.Run(name, func(t *testing.T) {
			beside(t)
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

// TestTheFolderAfterAStop is F34: a daemon that was asked to stop leaves the database, an empty log with its small
// index, the reserve, and files of a few bytes. sqlite3 -readonly can read the whole database.
func TestTheFolderAfterAStop(t *testing.T) {
	beside(t)
	needSqlite(t)
	d, h := NewDaemon(t), NewHistory()
	d.Start()
	keepAll(t, d.Client(), "agent-0")
	const saves = 40
	for n := range saves {
		r := newSave(t, "agent-0")
		r.ContentType, r.State = "application/octet-stream", noise(uint64(n), 300_000)
		_, err := h.Save(context.Background(), d.Client(), r)
		must(t, err)
	}
	before := fileSize(d.DB + "-wal")
	if code, _ := d.Stop(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	entries, err := os.ReadDir(filepath.Dir(d.DB))
	must(t, err)
	for _, entry := range entries {
		size := fileSize(filepath.Join(filepath.Dir(d.DB), entry.Name()))
		most := map[string]int64{"ckpt.db": 16 << 20, "ckpt.db-wal": 0, "ckpt.db-shm": 1 << 20, "ckpt.db-reserve": 4 << 20}
		if limit, known := most[entry.Name()]; size > limit && (known || size > 4<<10) {
			t.Errorf("%s has %d bytes", entry.Name(), size)
		}
	}
	out, err := exec.Command("sqlite3", "-readonly", d.DB, "SELECT count(*) FROM audit_checkpoints").CombinedOutput()
	if err != nil || strings.TrimSpace(string(out)) != strconv.Itoa(saves) {
		t.Errorf("sqlite3 -readonly says %q, %v", out, err)
	}
	note(t, "the log had %d KiB while it ran, and %d after the stop", before>>10, fileSize(d.DB+"-wal")>>10)
	count(t, figures{rounds: 1})
	d.Verify()
	d.Start()
	h.Check(t, d.Client, "agent-0")
	d.Stop()
}
