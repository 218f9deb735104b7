package client

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

// SpooledFile is a write that waits in the spool, or one that was refused.
type SpooledFile struct {
	Path      string    `json:"path"`
	State     string    `json:"state"` // waiting, rejected, damaged, newer
	Agent     string    `json:"agent"`
	Run       string    `json:"run"`
	What      string    `json:"what"` // the request: method and path
	CreatedAt ckpt.Time `json:"created_at"`
	Size      int64     `json:"size"`
}

// Spool lists the files of a spool folder, "" for the default one: the waiting writes in order, and
// then the refused ones.
func Spool(dir string) ([]SpooledFile, error) {
	s := &spool{dir: dir}
	dir, names, err := s.waiting()
	if err != nil {
		return nil, err
	}
	files := []SpooledFile{}
	for _, name := range names {
		files = append(files, describe(filepath.Join(dir, name), "waiting"))
	}
	aside, err := os.ReadDir(filepath.Join(dir, rejectedDir))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	for _, entry := range aside {
		if _, ok := orderOf(entry.Name()); ok {
			files = append(files, describe(filepath.Join(dir, rejectedDir, entry.Name()), "rejected"))
		}
	}
	return files, nil
}

// CountSpool counts the files of a spool folder, "" for the default one, without a look into them: those that wait, and
// those that were refused for good.
func CountSpool(dir string) (waiting, refused int, err error) {
	s := &spool{dir: dir}
	dir, names, err := s.waiting()
	if err != nil {
		return 0, 0, err
	}
	aside, err := os.ReadDir(filepath.Join(dir, rejectedDir))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return 0, 0, err
	}
	for _, entry := range aside {
		if _, ok := orderOf(entry.Name()); ok {
			refused++
		}
	}
	return len(names), refused, nil
}

func describe(path, state string) SpooledFile {
	f := SpooledFile{Path: path, State: state}
	head, _, err := readFile(path)
	switch {
	case errors.Is(err, errNewer):
		f.State = "newer"
	case err != nil && state == "waiting":
		f.State = "damaged"
	case err == nil:
		f.Agent, f.Run, f.What, f.CreatedAt, f.Size = head.Agent, head.Run, head.Method+" "+head.Path, head.CreatedAt, head.Size
	}
	return f
}
