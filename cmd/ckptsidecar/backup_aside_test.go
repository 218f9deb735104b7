package main

import (
	"context"
	"database/sql"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// TestABackupThatIsStoppedLeavesNothing: the daemon kills its scheduled backup when it stops or reads its settings
// again. Here the backup is held by the lock of another program when it is killed.
func TestABackupThatIsStoppedLeavesNothing(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path, folder := filepath.Join(dir, "ckpt.db"), filepath.Join(dir, "backups")
	if err := os.Mkdir(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	db.SetMaxOpenConns(1)
	if _, err := db.Exec(`CREATE TABLE t (x); BEGIN EXCLUSIVE`); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	began := func() bool {
		entries, err := os.ReadDir(folder)
		return err == nil && len(entries) > 0
	}
	go func() {
		for !began() && ctx.Err() == nil {
			time.Sleep(time.Millisecond)
		}
		cancel()
	}()
	if err := backUp(exec.CommandContext(ctx, "ckptsidecar", "backup", filepath.Join(folder, "b.db"), "--db", path), folder); err == nil {
		t.Error("a backup that was killed is no error")
	}
	if began() {
		t.Error("a backup that was killed has left something")
	}
}
