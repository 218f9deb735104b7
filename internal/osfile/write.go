package osfile

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// Write writes a file completely or not at all, even if the power fails. The file has exactly this mode, whatever the
// umask. A link at path is replaced and not followed.
func Write(path string, data []byte, mode fs.FileMode) error {
	return Fill(path, mode, func(w io.Writer) error {
		_, err := w.Write(data)
		return err
	})
}

// Fill is Write for data that fill writes piece by piece. If fill fails, the file at path stays as it was.
func Fill(path string, mode fs.FileMode, fill func(io.Writer) error) error {
	return replace(path, fill, func(f *os.File) error { return f.Chmod(mode) })
}

// Replace is Write for a file that may belong to another user: the new file has the mode and the owner of the one that
// it replaces. If there is none, it has mode, and root gives it to the owner of the folder.
func Replace(path string, data []byte, mode fs.FileMode) error {
	like, err := os.Lstat(path)
	if err == nil && !like.Mode().IsRegular() {
		return &fs.PathError{Op: "replace", Path: path, Err: errNotPlain}
	}
	if err == nil {
		mode = like.Mode().Perm()
	} else if like, err = os.Stat(filepath.Dir(path)); err != nil {
		return err
	}
	write := func(w io.Writer) error {
		_, err := w.Write(data)
		return err
	}
	return replace(path, write, func(f *os.File) error { return errors.Join(giveLike(f, like), f.Chmod(mode)) })
}

func replace(path string, fill func(io.Writer) error, finish func(*os.File) error) (err error) {
	dir := filepath.Dir(path)
	f, err := os.CreateTemp(dir, "."+filepath.Base(path)+".*.tmp") // 0600, and never an existing file
	if err != nil {
		return fmt.Errorf("cannot write beside %s: %w", path, err)
	}
	defer func() {
		if err != nil {
			_ = f.Close()
			_ = os.Remove(f.Name())
		}
	}()
	if err := fill(f); err != nil {
		return err
	}
	if err := errors.Join(finish(f), f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return err
	}
	return SyncFolder(dir)
}

// errNotPlain is the error for a link, a device, a FIFO or a file with a second name.
var errNotPlain = errors.New("it is not a plain file with one name")

// OpenPlain opens a file in its place. It follows no link, and refuses a file that is not a plain file with one name.
// Do not use O_TRUNC: the file is checked only after it was opened.
func OpenPlain(path string, flag int, mode fs.FileMode) (*os.File, error) {
	f, err := os.OpenFile(path, flag|noFollow, mode)
	if err != nil {
		return nil, err
	}
	opened, err := f.Stat()
	if err == nil {
		var named fs.FileInfo
		if named, err = os.Lstat(path); err == nil && (!os.SameFile(opened, named) || !IsPlain(path, named)) {
			err = &fs.PathError{Op: "open", Path: path, Err: errNotPlain}
		}
	}
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}

// IsPlain says whether the file that has a path and was found there is a regular file without a second name (a hard link).
func IsPlain(path string, info fs.FileInfo) bool {
	return info.Mode().IsRegular() && Names(path, info) <= 1
}
