package archive

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

// asidePrefix begins the names of the temporary files beside a database.
func asidePrefix(path string) string { return "." + filepath.Base(path) + "-aside-" }

// Sweep removes the temporary files that a killed daemon has left. Only who holds the lock of the
// database may call it.
func (s *Archive) Sweep() error {
	folder := filepath.Dir(s.Opt.Path)
	list, err := os.ReadDir(folder)
	for _, file := range list {
		if strings.HasPrefix(file.Name(), asidePrefix(s.Opt.Path)) {
			err = errors.Join(err, os.Remove(filepath.Join(folder, file.Name())))
		}
	}
	return err
}

// fileAside makes a temporary file beside the database.
func (s *Archive) fileAside() (*os.File, error) {
	f, err := os.CreateTemp(filepath.Dir(s.Opt.Path), asidePrefix(s.Opt.Path))
	if err != nil {
		return nil, ckpt.Wrap(ckpt.CodeStorageFull, err, "exports and imports need a file beside the database, and it cannot be created")
	}
	return f, nil
}

func dropAside(f *os.File) {
	_ = f.Close()
	_ = os.Remove(f.Name())
}

// heldInMemory is the most bytes that are put aside without a file, so that a small agent can be
// exported even if the disk is full.
const heldInMemory = 8 << 20

// aside takes what is read on one snapshot, so that a slow reader does not hold the snapshot.
type aside struct {
	store *Archive
	held  bytes.Buffer
	file  *os.File // used if the data does not fit in memory
}

// Write appends to the data.
func (a *aside) Write(p []byte) (int, error) {
	if a.file == nil && a.held.Len()+len(p) <= heldInMemory {
		return a.held.Write(p)
	}
	if a.file == nil {
		var err error
		if a.file, err = a.store.fileAside(); err != nil {
			return 0, err
		}
		if _, err := a.held.WriteTo(a.file); err != nil {
			return 0, noRoom(err)
		}
	}
	n, err := a.file.Write(p)
	return n, noRoom(err)
}

func noRoom(err error) error {
	if err == nil {
		return nil
	}
	return ckpt.Wrap(ckpt.CodeStorageFull, err, "the export cannot be stored beside the database: %v", err)
}

// reader reads the data from its beginning.
func (a *aside) reader() (io.Reader, error) {
	if a.file == nil {
		return &a.held, nil
	}
	_, err := a.file.Seek(0, io.SeekStart)
	return a.file, err
}

// drop discards the data.
func (a *aside) drop() {
	if a.file != nil {
		dropAside(a.file)
	}
}
