//go:build unix

package db_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db"
)

// TestNewFile checks the settings of a new database with the real sqlite3
// command.
func TestNewFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "sub", "ckpt.db")
	s := openWith(t, options(path, newClock()))
	save(t, s, ann, "a", ckpt.KindRoutine, `1`)
	want := map[string]string{
		"page_size": "4096", "auto_vacuum": "2", "journal_mode": "wal",
		"application_id": fmt.Sprint(ckpt.ApplicationID), "user_version": fmt.Sprint(ckpt.SchemaVersion),
	}
	for pragma, value := range want {
		if got := sqlite3(t, "-readonly", path, "PRAGMA "+pragma); got != value {
			t.Errorf("%s is %s, want %s", pragma, got, value)
		}
	}
	if got := sqlite3(t, "-readonly", path, "SELECT count(*) FROM meta WHERE key IN ('database_id', 'created_at')"); got != "2" {
		t.Errorf("%s of 2 lines in meta", got)
	}
}

// TestModes: the umask neither removes nor adds rights, and the log and its
// index have the same rights as the database.
func TestModes(t *testing.T) {
	for _, umask := range []int{0, 0o022, 0o077} {
		for _, mode := range []os.FileMode{0o600, 0o640} {
			path := filepath.Join(t.TempDir(), "ckpt.db")
			o := options(path, newClock())
			o.Mode = mode
			old := syscall.Umask(umask)
			s := openWith(t, o)
			save(t, s, ann, "a", ckpt.KindRoutine, `1`)
			syscall.Umask(old)
			for _, suffix := range []string{"", "-wal", "-shm"} {
				info, err := os.Lstat(path + suffix)
				if err != nil {
					t.Fatal(err)
				}
				if info.Mode().Perm() != mode {
					t.Errorf("umask %o: %s has mode %o, want %o", umask, filepath.Base(path+suffix), info.Mode().Perm(), mode)
				}
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// TestSecondDaemon: a second daemon finds out at once that the database is in
// use, from the same process and from another. It does not disturb the first.
func TestSecondDaemon(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "ckpt.db")
	s := openWith(t, options(path, newClock()))
	if _, err := db.Open(t.Context(), options(path, newClock())); !errors.Is(err, db.ErrLocked) {
		t.Errorf("a second store in this process: %v", err)
	}
	said := startChild(t, "hold", path, 0).all(t)
	if len(said) != 1 || !strings.HasPrefix(said[0], "open false true already running") {
		t.Errorf("a second store in another process said %q", said)
	}
	if whose := fmt.Sprintf("already running: another daemon (pid %d) has the database %s open", os.Getpid(), path); runtime.GOOS == "linux" && !strings.Contains(said[0], whose) {
		t.Errorf("a second store said %q, without %q", said[0], whose)
	}
	save(t, s, ann, "a", ckpt.KindRoutine, `1`)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	c := startChild(t, "hold", path, 0)
	if got := c.line(t); got != "opened" {
		t.Errorf("after the first has ended, another process said %q", got)
	}
	if _, err := db.Open(t.Context(), options(path, newClock())); !errors.Is(err, db.ErrLocked) {
		t.Errorf("beside another process: %v", err)
	}
}

// TestOpenNeedsARetention: this mistake in the wiring is found at start, not at
// the first save.
func TestOpenNeedsARetention(t *testing.T) {
	t.Parallel()
	if _, err := db.Open(t.Context(), db.Options{Path: filepath.Join(t.TempDir(), "ckpt.db")}); err == nil {
		t.Error("a store without a retention was opened")
	}
}

// TestOddPaths opens databases whose names have a special meaning in URIs and
// shells.
func TestOddPaths(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"a b.db", "100%.db", "x?mode=ro.db", "a#b&c=d.db", "日本.db", "file:x.db"} {
		path := filepath.Join(t.TempDir(), name)
		s := openWith(t, options(path, newClock()))
		save(t, s, ann, "a", ckpt.KindRoutine, `1`)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(path + "-wal"); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		sound(t, path)
	}
}
