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

// companions are the files that may lie beside a database and belong to it.
var companions = []string{"", "-wal", "-shm"}

// RestoreBackup puts a backup in the place of the database that opt names, while
// no daemon has it. The backup is copied and the copy verified first. What was
// there is kept under another name, which is the answer ("" where nothing was),
// and the audit log says what was done. progress, which may be nil, hears how
// the checking goes.
//
// Its errors are ErrLocked where a daemon has the database, *OperatorError, and
// *DamagedError where the backup is none.
func RestoreBackup(ctx context.Context, backup string, opt Options, progress func(done, total int64)) (kept string, err error) {
	opt.setDefaults()
	if _, err := os.Lstat(backup); err != nil {
		return "", &OperatorError{"there is no backup to restore", err}
	}
	s := &Store{opt: opt, log: opt.Log}
	if err := s.takeLock(ctx); err != nil {
		return "", err
	}
	release := s.lock
	defer func() { err = errors.Join(err, closeUnlessTaken(release)) }()
	ready, err := soundCopy(ctx, backup, opt.Path, progress)
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(filepath.Dir(ready))
	owner := ownerToBe(opt.Path)
	if kept, err = s.exchange(ready); err != nil {
		return kept, err
	}
	opt.lock, release = release, nil // from here on it is the store's to close
	if err := record(ctx, opt, backup, kept); err != nil {
		return kept, err
	}
	return kept, owner.give(opt.Path)
}

func closeUnlessTaken(f *os.File) error {
	if f == nil {
		return nil
	}
	return f.Close()
}

// DamagedError says what is wrong with a file that should be a backup.
type DamagedError struct{ Report *VerifyReport }

func (e *DamagedError) Error() string {
	return fmt.Sprintf("%s is damaged, so it is not restored: %s; take an older backup", e.Report.Path, e.Report.Problems[0])
}

// soundCopy is a copy of a backup, in a closed folder beside the place where it
// is to go, that has been verified.
func soundCopy(ctx context.Context, backup, path string, progress func(done, total int64)) (string, error) {
	report, err := Verify(ctx, backup, progress)
	if err != nil {
		return "", err
	}
	if len(report.Problems) > 0 {
		return "", &DamagedError{report}
	}
	folder, err := os.MkdirTemp(filepath.Dir(path), ".restore-")
	if err != nil {
		return "", &OperatorError{"the database's folder cannot be written", err}
	}
	copied := filepath.Join(folder, "ckpt.db")
	if err := copyDatabase(ctx, backup, copied); err != nil {
		return "", errors.Join(err, os.RemoveAll(folder))
	}
	if report, err = Verify(ctx, copied, nil); err == nil && len(report.Problems) > 0 {
		err = &DamagedError{report}
	}
	if err != nil {
		return "", errors.Join(err, os.RemoveAll(folder))
	}
	return copied, nil
}

// exchange moves away what is there and puts the copy in its place. Until it is
// done the marker of a fault lies beside them, so that a daemon that is started
// after a crash in the middle does not begin anew with an empty database.
func (s *Store) exchange(ready string) (kept string, err error) {
	path := s.opt.Path
	if err := os.WriteFile(s.marker(), []byte(`{"error":"a backup was being restored"}`), 0o600); err != nil {
		return "", &OperatorError{"the database's folder cannot be written", err}
	}
	aside := path + ".before-" + s.opt.Now().UTC().Format("20060102T150405.000Z")
	for _, suffix := range companions {
		err := os.Rename(path+suffix, aside+suffix)
		switch {
		case err == nil && suffix == "":
			kept = aside
		case err != nil && !errors.Is(err, fs.ErrNotExist):
			return kept, fmt.Errorf("what is there cannot be moved away: %w", err)
		}
	}
	if err := publish(ready, path); err != nil {
		return kept, fmt.Errorf("the backup cannot be put into its place; what was there is %s: %w", kept, err)
	}
	return kept, errors.Join(os.Chmod(path, s.opt.Mode), os.Remove(s.marker()), osfile.SyncFolder(filepath.Dir(path)))
}

// record opens the restored database, which proves that a daemon can, and
// writes into its audit log where it comes from.
func record(ctx context.Context, opt Options, backup, kept string) error {
	s, err := Open(ctx, opt)
	if err != nil {
		return err
	}
	err = s.write(&op{owner: daemon, apply: func(tx *tx) error {
		return tx.audit(auditEntry{Who: daemon, PID: os.Getpid(), Action: "restore_backup", Outcome: outcomeDone,
			Detail: map[string]any{"backup": backup, "kept": kept}})
	}})
	return errors.Join(err, s.Close())
}
