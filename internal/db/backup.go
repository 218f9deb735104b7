package db

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/ckptsidecar/ckptsidecar/internal/osfile"
)

// Backup writes a copy of a database, also while a daemon uses it, and gives
// it its name only once the copy has been verified and is on disk. It never
// replaces a file. progress, which may be nil, hears how the checking goes.
func Backup(ctx context.Context, path, out string, progress func(done, total int64)) error {
	return copyTo(ctx, path, out, func(copied string) error {
		report, err := Verify(ctx, copied, progress)
		if err == nil && len(report.Problems) > 0 {
			err = fmt.Errorf("the copy is damaged, so it is no backup: %s", report.Problems[0])
		}
		return err
	})
}

// copyAside is Backup of a database as it is, damage included.
func copyAside(ctx context.Context, path, out string) error {
	return copyTo(ctx, path, out, func(string) error { return nil })
}

// copyTo copies a database, and gives the copy its name once it was approved
// and is on disk.
func copyTo(ctx context.Context, path, out string, approve func(copied string) error) error {
	if _, err := os.Lstat(out); !errors.Is(err, fs.ErrNotExist) {
		return &OperatorError{fmt.Sprintf("%s exists: a backup never replaces a file, name another", out), nil}
	}
	if _, err := os.Lstat(path); err != nil {
		return &OperatorError{"there is no database to back up", err}
	}
	folder, err := os.MkdirTemp(filepath.Dir(out), ".backup-") // closed to others, so that nobody reads it half-made
	if err != nil {
		return &OperatorError{"the backup's folder cannot be written", err}
	}
	defer os.RemoveAll(folder)
	copied := filepath.Join(folder, "ckpt.db")
	if err := copyDatabase(ctx, path, copied); err != nil {
		return err
	}
	if err := approve(copied); err != nil {
		return err
	}
	return publish(copied, out)
}

func copyDatabase(ctx context.Context, path, out string) error {
	db, err := pool(path, "ro", 1, verifierPragmas)
	if err != nil {
		return err
	}
	defer db.Close()
	if _, err := db.ExecContext(ctx, `VACUUM INTO ?`, out); err != nil {
		return fmt.Errorf("the database cannot be copied: %w", err)
	}
	return nil
}

// publish flushes a finished file and gives it its name, which must be free.
func publish(file, name string) error {
	f, err := os.OpenFile(file, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	err = errors.Join(f.Chmod(0o600), f.Sync(), f.Close())
	if err != nil {
		return err
	}
	if err := os.Link(file, name); err != nil { // unlike rename it never replaces
		return err
	}
	return errors.Join(os.Remove(file), osfile.SyncFolder(filepath.Dir(name)))
}
