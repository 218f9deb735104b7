package sqlite

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

// OpenError says what to do about a file that cannot be opened.
func (e *Engine) OpenError(err error) error {
	path, hint := e.opt.Path, ""
	if e.HasLog() {
		hint = "; " + copiedHint
	}
	switch code := Code(err); {
	case code == 26:
		return &OperatorError{fmt.Sprintf("%s is not a SQLite database, or its first page is damaged: nothing was "+
			"changed; restore a backup or name another file with --db%s", path, hint), err}
	case code == 11 || code&0xff == 11:
		return &OperatorError{fmt.Sprintf(
			"%s is damaged: nothing was changed; run ckptsidecar verify --db %s, then restore a backup%s", path, path, hint), err}
	case code&0xff == 8:
		return &OperatorError{fmt.Sprintf("%s cannot be written: the file, its folder or its file system is read-only for this user", path), err}
	case code&0xff == 14:
		return &OperatorError{fmt.Sprintf("%s cannot be opened: check that this user may read and write it and its folder", path), err}
	case Classify(err) == ClassTransient:
		return ckpt.Wrap(ckpt.CodeBusy, err, "%s has %s locked", e.lockHolder(), path)
	case Classify(err) == ClassFull || code == 4874: // IOERR_SHMSIZE
		return &OperatorError{"the disk is full: " + path, err}
	case Classify(err) == ClassFatal:
		return &FatalError{err}
	}
	return &OperatorError{fmt.Sprintf("%s cannot be opened", path), err}
}

const notReadable = "the database cannot be read: run this as the daemon's user or as root"

// Missing says why there is no file to read: it does not exist, which the message none says, or this user may not see it.
func Missing(none string, err error) error {
	if errors.Is(err, fs.ErrPermission) {
		none = notReadable
	}
	return &OperatorError{none, err}
}

// NotReadable says what to do if SQLite could not open a file because this user may not read it. It returns other errors
// unchanged.
func NotReadable(path string, err error) error {
	if Code(err)&0xff != 14 {
		return err
	}
	f, denied := os.Open(path)
	switch {
	case denied == nil:
		_ = f.Close()
	case errors.Is(denied, fs.ErrPermission):
		return &OperatorError{notReadable, denied}
	}
	return err
}

// HasLog says, by the log's size alone, whether the write-ahead log has contents.
func (e *Engine) HasLog() bool {
	info, err := os.Lstat(e.opt.Path + "-wal")
	return err == nil && info.Size() > 0
}

// copiedHint is a possible reason for a database that is not consistent.
const copiedHint = "if it was copied with cp or by a file backup while a daemon ran, its write-ahead log does not belong to it: " +
	"take a copy that ckptsidecar backup made"

// Patiently retries the statements of opening and migrating.
func (e *Engine) Patiently(ctx context.Context, f func() error) error {
	_, err := retry(ctx, e.opt.WriteTimeout, func(int) error { return f() })
	if err != nil {
		return e.OpenError(err)
	}
	return nil
}
