//go:build linux

package db_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db"
	"github.com/ckptsidecar/ckptsidecar/internal/expect"
)

// allPoints makes a test kill at every system call, instead of a sample.
const allPoints = "FAULTTEST_ALL_POINTS"

// scene is a backup, and a database with a save that the backup does not have. That save is only in the write-ahead
// log, as after a crash.
type scene struct {
	dir, path, backup string
	before, after     *ckpt.Saved
}

// newScene copies a scene that is made once.
func newScene(t *testing.T) *scene {
	t.Helper()
	aScene.once.Do(func() { aScene.make(t) })
	dir := t.TempDir()
	x := &scene{dir: dir, path: filepath.Join(dir, "ckpt.db"), backup: filepath.Join(dir, "backup"), before: aScene.before, after: aScene.after}
	for name, text := range aScene.files {
		write(t, filepath.Join(dir, name), text)
	}
	return x
}

var aScene template

// template holds the files of a scene.
type template struct {
	once          sync.Once
	files         map[string][]byte
	before, after *ckpt.Saved
}

func (m *template) make(t *testing.T) {
	t.Helper()
	dir := t.TempDir()
	from, backup := filepath.Join(dir, "ckpt.db"), filepath.Join(dir, "backup")
	s := openWith(t, options(from, newClock()))
	m.before = save(t, s, ann, "a", ckpt.KindRecovery, "1")
	must(t, db.Backup(t.Context(), from, backup, nil))
	s.CopyWAL()
	m.after = save(t, s, ann, "a", ckpt.KindRecovery, "2")
	m.files = map[string][]byte{}
	for _, path := range []string{from, from + "-wal", backup} {
		text, err := os.ReadFile(path) // no process writes now
		must(t, err)
		m.files[filepath.Base(path)] = text
	}
	must(t, s.Close())
}

// oldIn checks that a database that was set aside has the save that the backup does not have.
func (x *scene) oldIn(t *testing.T, path string) {
	t.Helper()
	if path == "" {
		t.Fatal("nothing was kept")
	}
	holds(t, path, map[string]bool{x.before.ID: true, x.after.ID: true})
}

// TestRestoreKilledAtACall kills a restore at its system calls. After each kill, a daemon finds the old database or
// the backup, or refuses to start. Running the same command again finishes the restore and says where the old
// database is.
func TestRestoreKilledAtACall(t *testing.T) {
	t.Parallel()
	expect.OneThread(t)
	strace, err := exec.LookPath("strace")
	if err != nil {
		t.Skip("strace is not installed")
	}
	calls := map[string]int{ // with the number of calls that a sample skips after each one
		"renameat,renameat2,rename": 1, "unlinkat,unlink,mkdirat": 3, "fsync,fdatasync": 11, "ftruncate": 3, "fchmod": 3, "pwrite64": 97,
	}
	var points atomic.Int64
	t.Cleanup(func() { // after all of them have ended
		t.Logf("killed at %d points", points.Load())
		if points.Load() < 10 {
			t.Errorf("it was killed at %d points only", points.Load())
		}
	})
	for call, step := range calls {
		if *long || os.Getenv(allPoints) != "" {
			step = 1
		}
		t.Run(call, func(t *testing.T) {
			t.Parallel()
			for n := 1; ; n += step {
				killed := false
				ok := t.Run(fmt.Sprint(n), func(t *testing.T) {
					x := newScene(t)
					said := startChild(t, "restore", x.path, 0, strace, "-f", "-qq", "-o", filepath.Join(t.TempDir(), "trace"),
						"-e", "trace="+call, "-e", fmt.Sprintf("inject=%s:signal=SIGKILL:when=%d", call, n)).all(t)
					killed = !has(said, "restored")
					if killed {
						x.neverBetween(t)
					}
					x.again(t, said)
				})
				if !ok || !killed {
					break
				}
				points.Add(1)
			}
		})
	}
}

// neverBetween starts a daemon on a copy of what was left: it finds the old database or the backup, or refuses.
func (x *scene) neverBetween(t *testing.T) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "copy")
	if out, err := tool(t, "cp", "-a", x.dir, dir).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	path := filepath.Join(dir, "ckpt.db")
	if note, err := os.ReadFile(path + ".restoring"); err == nil { // this file contains paths
		must(t, os.WriteFile(path+".restoring", []byte(strings.ReplaceAll(string(note), x.dir, dir)), 0o600))
	}
	s, err := db.Open(t.Context(), options(path, newClock()))
	var operator *db.OperatorError
	if errors.As(err, &operator) {
		if !strings.Contains(err.Error(), "restore-backup") {
			t.Errorf("the refusal does not say why: %v", err)
		}
		return
	}
	must(t, err)
	defer s.Close()
	if _, err := s.Checkpoint(t.Context(), ann, x.before.ID, true); err != nil {
		t.Errorf("what both have is not there: %v", err)
	}
	rows := sqlite3(t, "-readonly", path, "SELECT count(*) FROM audit_log WHERE action = 'restore_backup'")
	if _, err := s.Checkpoint(t.Context(), ann, x.after.ID, true); (err == nil) == (rows == "1") {
		t.Errorf("it is neither the old database nor the backup: %v, %s rows", err, rows)
	}
}

// again runs the same command again and checks that both databases are accounted for.
func (x *scene) again(t *testing.T, said []string) {
	t.Helper()
	var kept []string // all names that were ever reported
	for _, line := range said {
		if name, ok := strings.CutPrefix(line, "kept "); ok {
			kept = append(kept, name)
		}
	}
	if !has(said, "restored") {
		done, err := db.RestoreBackup(t.Context(), x.backup, options(x.path, newClock()), nil, nil)
		must(t, err)
		kept = append(append(kept, done.Earlier...), done.Kept)
	}
	x.oldIn(t, kept[0])
	holds(t, x.path, map[string]bool{x.before.ID: true, x.after.ID: false})
	if rows := sqlite3(t, "-readonly", x.path, "SELECT count(*) FROM audit_log WHERE action = 'restore_backup'"); rows != "1" {
		t.Errorf("%s rows say that it was restored", rows)
	}
	sound(t, x.path)
	nothingLeft(t, x.path)
}

// TestInterruptedRestoreWithAnotherBackup: a part that was not put in its place is undone, a part that was is
// finished, and every file that was ever set aside is reported.
func TestInterruptedRestoreWithAnotherBackup(t *testing.T) {
	t.Parallel()
	expect.OneThread(t)
	for _, at := range []string{"renameat:signal=SIGKILL:when=3", "renameat:signal=SIGKILL:when=5", "renameat:signal=SIGKILL:when=6", "unlinkat:signal=SIGKILL:when=4"} {
		t.Run(at, func(t *testing.T) {
			x := newScene(t)
			said := underStraceAs(t, "restore", x.path, "renameat,unlinkat", at)
			if has(said, "restored") {
				t.Skipf("this machine makes other calls: %v", said)
			}
			other := closedDatabase(t)
			done, err := db.RestoreBackup(t.Context(), other, options(x.path, newClock()), nil, nil)
			must(t, err)
			found := false
			for _, kept := range append(done.Earlier, done.Kept) {
				s := openWith(t, options(kept, newClock()))
				_, err := s.Checkpoint(t.Context(), ann, x.after.ID, true)
				found = found || err == nil
				must(t, s.Close())
			}
			if !found {
				t.Errorf("none of what was kept is the old database: %+v", done)
			}
			sound(t, x.path)
			nothingLeft(t, x.path)
		})
	}
}

// TestInterruptedRestoreIsTakenBack: restoring the database that was set aside undoes the restore.
func TestInterruptedRestoreIsTakenBack(t *testing.T) {
	t.Parallel()
	x := newScene(t)
	said := underStraceAs(t, "restore", x.path, "renameat", "renameat:signal=SIGKILL:when=5")
	asides, _ := filepath.Glob(x.path + ".before-*Z")
	if has(said, "restored") || len(asides) != 1 {
		t.Fatalf("%v, %v", said, asides)
	}
	done, err := db.RestoreBackup(t.Context(), asides[0], options(x.path, newClock()), nil, nil)
	must(t, err)
	if !done.Undone || done.Kept != "" {
		t.Errorf("%+v", done)
	}
	nothingLeft(t, x.path)
	x.oldIn(t, x.path)
}
