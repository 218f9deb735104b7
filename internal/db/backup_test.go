package db_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db"
)

// TestBackupUnderLoad copies the database while many clients save. Each copy
// passes verify by itself, contains what was acknowledged before the copy
// began, and can be opened.
func TestBackupUnderLoad(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "ckpt.db")
	s := openWith(t, options(path, newClock()))
	stop := make(chan bool)
	var wg sync.WaitGroup
	for w := range 3 {
		wg.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
					save(t, s, ann, fmt.Sprintf("a%d", w), ckpt.KindRoutine, fmt.Sprint(i))
				}
			}
		})
	}
	for i := range 4 {
		before := save(t, s, ann, "mark", ckpt.KindRecovery, fmt.Sprint(i))
		out := filepath.Join(t.TempDir(), "backup.db")
		must(t, db.Backup(t.Context(), path, out, nil))
		info, err := os.Stat(out)
		must(t, err)
		if runtime.GOOS != "windows" && info.Mode().Perm() != 0o600 {
			t.Errorf("the backup has mode %o", info.Mode().Perm())
		}
		if entries, _ := os.ReadDir(filepath.Dir(out)); len(entries) != 1 {
			t.Errorf("beside the backup lies something: %v", entries)
		}
		sound(t, out)
		restored := openWith(t, options(out, newClock()))
		if _, err := restored.Checkpoint(t.Context(), ann, before.ID, true); err != nil {
			t.Error(err)
		}
		must(t, restored.Close())
	}
	close(stop)
	wg.Wait()
}

// TestBackupRefusals: a backup never replaces a file, never gives its name to a
// copy that fails verify, and leaves nothing behind.
func TestBackupRefusals(t *testing.T) {
	t.Parallel()
	_, damagedPath, _, _ := damaged(t)
	sound := closedDatabase(t)
	taken := filepath.Join(t.TempDir(), "taken")
	write(t, taken, []byte("precious"))
	dangling := filepath.Join(t.TempDir(), "link")
	must(t, os.Symlink("nowhere", dangling))
	free := filepath.Join(t.TempDir(), "free.db")
	for name, c := range map[string]struct{ from, to string }{
		"taken": {sound, taken}, "symlink": {sound, dangling}, "no database": {sound + "x", free}, "no folder": {sound, filepath.Join(free, "x")},
		"damaged": {damagedPath, free}, "itself": {sound, sound},
	} {
		err := db.Backup(t.Context(), c.from, c.to, nil)
		if err == nil {
			t.Errorf("%s: there was a backup", name)
		}
		var operator *db.OperatorError
		if name != "damaged" && !errors.As(err, &operator) {
			t.Errorf("%s: %T %v", name, err, err)
		}
	}
	if b, _ := os.ReadFile(taken); string(b) != "precious" {
		t.Errorf("the file became %q", b)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := db.Backup(ctx, sound, free, nil); err == nil {
		t.Error("a cancelled backup succeeded")
	}
	for _, dir := range []string{filepath.Dir(free), filepath.Dir(taken)} {
		entries, err := os.ReadDir(dir)
		must(t, err)
		if dir == filepath.Dir(free) && len(entries) != 0 || dir != filepath.Dir(free) && len(entries) != 1 {
			t.Errorf("left behind in %s: %v", dir, entries)
		}
	}
}

// TestSweepBackups removes what a backup leaves that is killed before its copy has its name, and
// nothing that a backup still works on.
func TestSweepBackups(t *testing.T) {
	t.Parallel()
	_ = tool(t, "cp") // the callback below cannot skip
	s, _ := open(t)
	save(t, s, ann, "a", ckpt.KindRoutine, `1`)
	folder, killed := t.TempDir(), filepath.Join(t.TempDir(), "killed")
	again := filepath.Join(t.TempDir(), "[again")
	copied := sync.OnceFunc(func() {
		must(t, tool(t, "cp", "-r", folder, killed).Run())
		must(t, tool(t, "cp", "-r", folder, again).Run())
		must(t, db.SweepBackups(folder, time.Now().Add(-time.Hour)))
	})
	must(t, db.Backup(t.Context(), pathOf(s), filepath.Join(folder, "b.db"), func(int64, int64) { copied() }))
	left := func() int {
		list, err := os.ReadDir(killed)
		must(t, err)
		return len(list)
	}
	if n := left(); n != 1 {
		t.Fatalf("a killed backup leaves %d files", n)
	}
	must(t, db.SweepBackups(killed, time.Now().Add(time.Hour)))
	if n := left(); n != 0 {
		t.Errorf("%d files are left", n)
	}

	killed = again // who knows which process was killed need not wait
	must(t, db.RemoveUnfinished(again, os.Getpid()+1))
	if n := left(); n != 1 {
		t.Errorf("%d files are left after the end of another process", n)
	}
	must(t, db.RemoveUnfinished(again, os.Getpid()))
	if n := left(); n != 0 {
		t.Errorf("%d files are left", n)
	}
}
