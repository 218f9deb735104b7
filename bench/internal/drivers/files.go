package drivers

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"

	"github.com/ckptsidecar/ckptsidecar/bench/internal/load"
)

// files saves without any system: it writes a temporary file, flushes it, renames it to its place,
// and flushes the folder.
type files struct{ dir string }

func openFiles(_ context.Context, dir string) (load.Store, error) { return &files{dir}, nil }

func (s *files) Version() string { return "" }
func (s *files) Close() error    { return nil }

func (s *files) Client(_ context.Context, id load.Client, body func(load.Save) error) error {
	path := filepath.Join(s.dir, id.Name)
	if err := os.MkdirAll(path, 0o700); err != nil {
		return err
	}
	folder, err := os.Open(path)
	if err != nil {
		return err
	}
	defer folder.Close()
	return body(func(seq int, state []byte) error {
		name := "newest.json"
		if id.History {
			name = strconv.Itoa(seq) + ".json"
		}
		if err := replace(filepath.Join(path, name), state); err != nil {
			return err
		}
		return folder.Sync()
	})
}

func replace(path string, state []byte) error {
	f, err := os.Create(path + ".tmp")
	if err != nil {
		return err
	}
	_, err = f.Write(state)
	if err == nil {
		err = f.Sync()
	}
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	return os.Rename(path+".tmp", path)
}
