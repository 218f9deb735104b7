package db

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
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
	spent, readable := spentEpochs(ctx, done.SetAside)
	err = s.Submit(&ledger.Op{Owner: ledger.Daemon, Do: func(tx *ledger.Tx) error {
		if err := passEpochs(tx, spent); err != nil {
			return err
		}
		if !readable { // no epoch that it has given away is as high as the time in seconds
			if err := tx.SpendEpoch(tx.Now.Unix()); err != nil {
				return err
			}
		}
		var rows int64
		if _, err := tx.Get(&rows, `SELECT count(*) FROM acts a JOIN act_texts t ON t.n = a.n
			WHERE a.n > (SELECT n - 64 FROM audit_head) AND a.action = 'restore_backup'
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

// passEpochs makes restored runs go on from the epochs that the replaced database has given away. Owners that
// are alive go on too. Runs that the backup does not have may be made again under their names.
func passEpochs(tx *ledger.Tx, spent []spentEpoch) error {
	list, err := json.Marshal(spent)
	if err != nil {
		return err
	}
	const given = `(SELECT value->>'uid' AS uid, value->>'epoch' AS epoch FROM json_each(?)) AS given`
	err = tx.Exec(`UPDATE runs SET epoch = given.epoch FROM `+given+` WHERE runs.uid = given.uid AND runs.epoch < given.epoch`, string(list))
	if err != nil {
		return err
	}
	var most int64
	_, err = tx.Get(&most, `SELECT coalesce(max(epoch), 0) FROM `+given+` WHERE uid NOT IN (SELECT uid FROM runs WHERE uid IS NOT NULL)`, string(list))
	if err != nil || most == 0 {
		return err
	}
	return tx.SpendEpoch(most)
}

// spentEpoch is how far a run's epoch had come in the replaced database.
type spentEpoch struct {
	UID   string `db:"uid" json:"uid"`
	Epoch int64  `db:"epoch" json:"epoch"`
}

// spentEpochs reads the epochs that the replaced database has given away. Their owners may still run. An
// epoch must not get a second owner, so the restored runs continue after them. It also returns whether
// the database could be read.
func spentEpochs(ctx context.Context, setAside string) (spent []spentEpoch, readable bool) {
	if _, err := os.Stat(setAside); errors.Is(err, fs.ErrNotExist) {
		return nil, true
	}
	q, closeIt, err := sqlite.OpenBeside(setAside, 1)
	if err != nil {
		return nil, false
	}
	defer closeIt()
	err = q.SelectContext(ctx, &spent, `SELECT uid, epoch FROM runs WHERE uid IS NOT NULL`)
	return spent, err == nil
}
