package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/ckptsidecar/ckptsidecar/bench/internal/host"
)

const (
	scratchPrefix = "ckptsidecar-peers-"
	scratchLock   = "lock" // a file in it, which is locked for as long as its process lives
)

// makeScratch makes the folder for everything that is removed when the run ends. It also removes
// the folders of earlier runs that were killed.
func makeScratch(parent string) (dir string, release func(), err error) {
	sweep(parent)
	if dir, err = os.MkdirTemp(parent, scratchPrefix); err != nil {
		return "", nil, err
	}
	held, err := host.Lock(filepath.Join(dir, scratchLock))
	if err == nil {
		err = os.Chmod(dir, 0o755) // PostgreSQL runs as another user, who must be able to pass through
	}
	if err != nil {
		os.RemoveAll(dir)
		return "", nil, err
	}
	return dir, func() {
		if err := os.RemoveAll(dir); err != nil {
			fmt.Fprintln(os.Stderr, "bench: remove this folder:", err)
		}
		held.Close()
	}, nil
}

// sweep removes folders whose lock no process holds. A folder without a lock file is just being
// made.
func sweep(parent string) {
	locks, _ := filepath.Glob(filepath.Join(parent, scratchPrefix+"*", scratchLock))
	for _, path := range locks {
		if held, err := host.Lock(path); err == nil {
			os.RemoveAll(filepath.Dir(path))
			held.Close()
		}
	}
}
