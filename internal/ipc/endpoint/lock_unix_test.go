//go:build linux || darwin

package endpoint

import (
	"path/filepath"
	"syscall"
	"testing"

	"github.com/ckptsidecar/ckptsidecar/internal/osfile"
)

// TestTheLockIsGivenBackBesideAChild: a child that has not executed its program yet has all files of its
// parent open. It must not keep the lock of a socket that was closed.
func TestTheLockIsGivenBackBesideAChild(t *testing.T) {
	path := filepath.Join(folder(t), "s")
	lock, err := lockBeside(path)
	if err != nil {
		t.Fatal(err)
	}
	child, err := syscall.Dup(int(lock.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(child)
	if err := osfile.Unlock(lock); err != nil {
		t.Fatal(err)
	}
	again, err := lockBeside(path)
	if err != nil {
		t.Fatalf("the lock after it was given back: %v", err)
	}
	if err := osfile.Unlock(again); err != nil {
		t.Error(err)
	}
}
