package sqlite

import (
	"context"
	"fmt"
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
