package files

import (
	"errors"
	"io"
	"io/fs"
	"os"
)

// errNotRegular means that a path is not a regular file.
var errNotRegular = errors.New("not a regular file")

// readPlain reads a regular file of at most so many bytes. It does not follow a link at
// the path.
func readPlain(path string, most int64) ([]byte, error) {
	named, err := os.Lstat(path)
	if err != nil {
		return nil, err
	}
	if !named.Mode().IsRegular() {
		return nil, &fs.PathError{Op: "read", Path: path, Err: errNotRegular}
	}
	f, err := os.OpenFile(path, os.O_RDONLY|noWait, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	opened, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !os.SameFile(named, opened) {
		return nil, &fs.PathError{Op: "read", Path: path, Err: errNotRegular}
	}
	text, err := io.ReadAll(io.LimitReader(f, most+1))
	if err == nil && int64(len(text)) > most {
		err = &fs.PathError{Op: "read", Path: path, Err: errors.New("too large")}
	}
	return text, err
}
