//go:build unix

package sqlite

import (
	"path/filepath"
	"syscall"
	"testing"

	"github.com/ckptsidecar/ckptsidecar/internal/osfile"
)

// TestTheLockIsGivenBackBesideAChild: between fork and exec, a child has all
// files of its parent open. It must not keep the lock of a closed store.
func TestTheLockIsGivenBackBesideAChild(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ckpt.db.lock")
	f, err := lockFile(path)
	if err != nil {
		t.Fatal(err)
	}
	child, err := syscall.Dup(int(f.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(child)
	if err := osfile.Unlock(f); err != nil {
		t.Fatal(err)
	}
	again, err := lockFile(path)
	if err != nil {
		t.Fatalf("the lock after it was given back: %v", err)
	}
	if err := osfile.Unlock(again); err != nil {
		t.Error(err)
	}
}
