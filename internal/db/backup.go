package db

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/ckptsidecar/ckptsidecar/internal/db/audit"
	"github.com/ckptsidecar/ckptsidecar/internal/db/ledger"
	"github.com/ckptsidecar/ckptsidecar/internal/db/sqlite"
)

// Restored is the result of RestoreBackup.
type Restored = sqlite.Restored

// DamagedError describes what is wrong with a file that should be a backup.
type DamagedError struct{ Report *audit.VerifyReport }

func (e *DamagedError) Error() string {
	return fmt.Sprintf("%s is damaged, so it is not restored: %s; take an older backup", e.Report.Path, e.Report.Problems[0])
}

// Backup writes a copy of a database. A daemon may use the database meanwhile. The copy gets its
// name only after it has been verified and is on disk. Backup never replaces a file. progress may
// be nil; it is called with the progress of the check.
func Backup(ctx context.Context, path, out string, progress func(done, total int64)) error {
	return sqlite.Backup(ctx, path, out, func(copied string) error {
		report, err := audit.Verify(ctx, copied, progress)
		if err == nil && len(report.Problems) > 0 {
			err = fmt.Errorf("the copy is damaged, so it is no backup: %s", report.Problems[0])
		}
		return err
	})
}

// SweepBackups removes the copies that killed backups have left in a folder, if nobody has changed
// them since a time.
func SweepBackups(folder string, since time.Time) error {
	return sqlite.SweepUnfinished(folder, since)
}

// RemoveUnfinished removes what a process that was killed during a backup has left in the backup's folder.
func RemoveUnfinished(folder string, pid int) error { return sqlite.RemoveUnfinished(folder, pid) }

// RestoreBackup puts a backup in the place of the database that opt names, while no daemon has it
// open: see sqlite.Restore. The audit log records the restore. progress, which may be nil, is
// called with the progress of the backup's check. tell, which may be nil, is told what was kept and
// where.
//
// Its errors are ErrLocked if a daemon has the database, *OperatorError, and *DamagedError if the
// file is not a sound backup.
func RestoreBackup(ctx context.Context, backup string, opt Options, progress func(done, total int64), tell func(*Restored)) (*Restored, error) {
	opt.SetDefaults()
	if tell == nil {
		tell = func(*Restored) {}
	}
	return sqlite.Restore(ctx, sqlite.RestoreOptions{
		Path: opt.Path, Mode: opt.Mode, Now: opt.Now, Backup: backup, Beside: []string{ledger.HeadSuffix}, Tell: tell,
		Verify: func(ctx context.Context, path string) error {
			report, err := audit.Verify(ctx, path, progress)
			progress = nil // it is for the check of the backup; the check of the copy comes after it
			if err == nil && len(report.Problems) > 0 {
				err = &DamagedError{report}
			}
			return err
		},
		Prove: func(ctx context.Context, lock *os.File, done sqlite.Exchange, finish func() error) error {
			opt.Lock = lock
			return recordRestore(ctx, opt, done, finish)
		},
	})
}

// recordRestore opens a restored database and records in its audit log where it came from. The row
// may be there already.
func recordRestore(ctx context.Context, opt Options, done sqlite.Exchange, finish func() error) error {
	s, err := Open(ctx, opt)
	if err != nil {
		return err
	}
	err = s.Submit(&ledger.Op{Owner: ledger.Daemon, Do: func(tx *ledger.Tx) error {
		var rows int64
		if _, err := tx.Get(&rows, `SELECT count(*) FROM acts a JOIN words x ON x.id = a.action JOIN act_texts t ON t.n = a.n
			WHERE a.n > (SELECT n - 64 FROM audit_head) AND x.word = 'restore_backup'
			AND json_extract(t.detail, '$.set_aside') = ?`, done.SetAside); err != nil || rows > 0 {
			return err
		}
		return tx.Audit(ledger.AuditEntry{Who: ledger.Daemon, PID: os.Getpid(), Action: "restore_backup", Outcome: ledger.OutcomeDone,
			Detail: map[string]any{"backup": done.Backup, "kept": done.Kept, "set_aside": done.SetAside}})
	}})
	if err == nil {
		err = finish()
	}
	return errors.Join(err, s.Close())
}
