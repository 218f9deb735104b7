package daemon

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

// RunDrills makes a drill when one is due, until ctx ends. It logs errors and continues.
func (b *backups) RunDrills(ctx context.Context) error {
	if b.drillEvery == 0 {
		return nil
	}
	pause, again := max(min(2*firstBackup, b.drillEvery/5), b.drillDue()), false
	for {
		if waitUntilDue(ctx, pause, again, b.drillDue) != nil {
			return nil
		}
		made, err := b.Drill(ctx)
		if err != nil && ctx.Err() == nil {
			b.log.Error("a backup could not be restored on trial", "error", err, "folder", b.folder)
			b.failed(ctx, fmt.Sprintf("A backup could not be restored on trial: %v", err))
		}
		if again = err != nil || !made; again {
			pause = min(retryBackup, b.drillEvery)
		} else {
			pause = max(time.Second, b.drillDue())
		}
	}
}

// drillDue returns the time until the next drill. A drill from the future was made before the clock was set back.
func (b *backups) drillDue() time.Duration {
	age := b.now().Sub(readNote(b.folder, drillFile).At.Time)
	if age < 0 {
		return 0
	}
	return max(0, b.drillEvery-age)
}

// Drill restores the newest backup into a temporary folder as a database of a daemon, verifies the database, and removes
// it. It returns whether there was a backup.
func (b *backups) Drill(ctx context.Context) (made bool, err error) {
	b.busy.Lock()
	defer b.busy.Unlock()
	list, err := b.list()
	if err != nil || len(list) == 0 {
		return false, err
	}
	newest := list[len(list)-1]
	began := time.Now()
	if err = b.tryRestore(ctx, newest); ctx.Err() != nil {
		return true, ctx.Err()
	}
	result := backupNote{At: ckpt.At(b.now()), Backup: newest.path}
	if err != nil {
		err = fmt.Errorf("%s: %w", newest.path, err)
		result.Error = err.Error()
	} else {
		b.log.Info("backup restored on trial and verified", "file", newest.path, "took", time.Since(began).Round(time.Millisecond))
	}
	return true, cmp.Or(err, b.note(drillFile, result))
}

func (b *backups) tryRestore(ctx context.Context, backup backupFile) error {
	if err := b.roomFor(backup.bytes, "a trial restore"); err != nil {
		return err
	}
	folder, err := os.MkdirTemp(b.folder, ".backup-drill-") // a name that SweepBackups knows, with a ckpt.db in it
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder)
	return b.restore(ctx, backup.path, filepath.Join(folder, "ckpt.db"))
}
