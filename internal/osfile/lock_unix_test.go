//go:build unix

package osfile_test

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/ckptsidecar/ckptsidecar/internal/osfile"
)

// TestOneHoldsALock: nobody else gets a lock that somebody holds, and it is
// free after Unlock, even while a child that has not yet begun its own program
// has all files of its parent open.
func TestOneHoldsALock(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	f, err := osfile.LockAt(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := osfile.LockAt(path); !errors.Is(err, osfile.ErrLocked) {
		t.Fatalf("a second lock: %v", err)
	}
	child, err := syscall.Dup(int(f.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(child)
	if err := osfile.Unlock(f); err != nil {
		t.Fatal(err)
	}
	again, err := osfile.LockAt(path)
	if err != nil {
		t.Fatalf("the lock after it was given back: %v", err)
	}
	if err := osfile.Unlock(again); err != nil {
		t.Error(err)
	}
}

// TestLocksOfFilesThatAreElsewhere: a lock is never taken through a link, and
// a removed file has no say: who comes next locks a new one.
func TestLocksOfFilesThatAreElsewhere(t *testing.T) {
	dir := t.TempDir()
	link := filepath.Join(dir, "link")
	if err := os.Symlink(filepath.Join(dir, "other"), link); err != nil {
		t.Fatal(err)
	}
	if f, err := osfile.LockAt(link); err == nil {
		f.Close()
		t.Error("a link was followed")
	}
	path := filepath.Join(dir, "lock")
	old, err := osfile.LockAt(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	f, err := osfile.LockAt(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(osfile.Unlock(old), osfile.Unlock(f)); err != nil {
		t.Error(err)
	}
}
