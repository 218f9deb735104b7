package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// writeFileAtomically writes a file that is there whole or not at all, also
// after a crash, readable by its owner alone: states may hold secrets.
func writeFileAtomically(path string, data []byte) error {
	return fillFileAtomically(path, func(w io.Writer) error {
		_, err := w.Write(data)
		return err
	})
}

// fillFileAtomically is the same for what is written piece by piece.
func fillFileAtomically(path string, fill func(io.Writer) error) (err error) {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*.tmp") // 0600
	if err != nil {
		return fmt.Errorf("cannot write beside %s: %w", path, err)
	}
	defer func() {
		if err != nil {
			f.Close()
			os.Remove(f.Name())
		}
	}()
	steps := []func() error{
		func() error { return fill(f) },
		f.Sync,
		f.Close,
		func() error { return os.Rename(f.Name(), path) },
		func() error { return syncFolder(filepath.Dir(path)) },
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}
