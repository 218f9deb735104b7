//go:build unix

package client_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ckptsidecar/ckptsidecar/client"
)

// TestASpoolThatOthersMayWriteToIsNotRead: what waits there can come from another user.
func TestASpoolThatOthersMayWriteToIsNotRead(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	c := d.open(t, failOpen)
	_, err := c.Agent("a").Save(t.Context(), 1)
	must(t, err)
	dir := filepath.Join(d.dir, "spool")
	must(t, os.Chmod(dir, 0o777))
	d.start()
	for range 2 {
		r, err := c.Replay(t.Context())
		if err == nil || !strings.Contains(err.Error(), "others may write") || r.Sent != 0 {
			t.Errorf("%+v, %v", r, err)
		}
		if saved, err := c.Agent("a").Save(t.Context(), 2); err != nil || saved.Fate != client.Stored { // it does not hold the agent up
			t.Errorf("%+v, %v", saved, err)
		}
		// A link to the folder can be moved to another one.
		must(t, os.Chmod(dir, 0o700))
		must(t, os.Rename(dir, dir+"2"))
		must(t, os.Symlink(dir+"2", dir))
		if _, err := c.Replay(t.Context()); err == nil || !strings.Contains(err.Error(), "is not a folder") {
			t.Errorf("%v", err)
		}
		must(t, os.Remove(dir))
		must(t, os.Rename(dir+"2", dir))
		must(t, os.Chmod(dir, 0o777))
	}
	if ids := all(t, d.open(t), "a"); len(ids) != 2 {
		t.Errorf("%d saves are there", len(ids))
	}
}

// TestLinksInTheSpoolAreNotFollowed: a link is no file that a client has written.
func TestLinksInTheSpoolAreNotFollowed(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	c := d.open(t, failOpen)
	_, err := c.Agent("a").Save(t.Context(), 1)
	must(t, err)
	files, _ := filepath.Glob(filepath.Join(d.dir, "spool", "*.ckpt"))
	elsewhere := filepath.Join(d.dir, "elsewhere")
	must(t, os.Rename(files[0], elsewhere))
	must(t, os.Symlink(elsewhere, files[0]))
	d.start()
	if r, err := c.Replay(t.Context()); err != nil || r.Sent != 0 || r.Rejected != 1 {
		t.Errorf("%+v, %v", r, err)
	}
}
