package client_test

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ckptsidecar/ckptsidecar/client"
)

// TestASpoolThatCannotBeWrittenHoldsNothingUp: its writes are sent without the lock, each once by
// one client, and before the next write of their run.
func TestASpoolThatCannotBeWrittenHoldsNothingUp(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	for i := range 2 {
		_, err := d.open(t, failOpen).Agent("a").Save(t.Context(), i)
		must(t, err)
	}
	d.start()
	dir := filepath.Join(d.dir, "spool")
	lock := filepath.Join(dir, "replay.lock")
	must(t, os.WriteFile(lock, []byte(`{"pid":1,"host":"another host","token":"t"}`), 0o600)) // its holder is gone
	must(t, os.Chtimes(lock, time.Unix(1, 0), time.Unix(1, 0)))
	must(t, os.Chmod(dir, 0o500))
	t.Cleanup(func() { _ = os.Chmod(dir, 0o700) })
	obeyModes(t)
	c := d.open(t, failOpen, func(c *client.Client) { c.Deadline = time.Minute })
	if saved, err := c.Agent("a").Save(t.Context(), 2); err != nil || saved.Fate != client.Stored {
		t.Errorf("%+v, %v", saved, err)
	}
	if r, err := c.ReplayRun(t.Context(), "a", ""); err != nil || r.Sent != 0 || r.Left != 0 {
		t.Errorf("the client sent them before: %+v, %v", r, err)
	}
	if r, err := d.open(t).Replay(t.Context()); err != nil || r.Sent != 2 || r.Left != 0 {
		t.Errorf("%+v, %v", r, err)
	}
	if ids := all(t, c, "a"); len(ids) != 3 {
		t.Errorf("%d saves are there", len(ids))
	}
	var last int
	if _, err := c.Agent("a").Latest(t.Context(), &last); err != nil || last != 2 {
		t.Errorf("the last state is %d, %v", last, err)
	}
	must(t, os.Chmod(dir, 0o700))
	if r, err := c.Replay(t.Context()); err != nil || r.Sent != 0 {
		t.Errorf("%+v, %v", r, err)
	}
	if files, _ := filepath.Glob(filepath.Join(dir, "*")); len(files) != 0 {
		t.Errorf("these are left: %v", files)
	}
}

// obeyModes takes from the thread of this test what lets root ignore the modes of files.
func obeyModes(t *testing.T) {
	t.Helper()
	runtime.LockOSThread() // it ends with the test
	head := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var rights [2]unix.CapUserData
	must(t, unix.Capget(&head, &rights[0]))
	rights[0].Effective &^= 1<<unix.CAP_DAC_OVERRIDE | 1<<unix.CAP_DAC_READ_SEARCH
	must(t, unix.Capset(&head, &rights[0]))
}
