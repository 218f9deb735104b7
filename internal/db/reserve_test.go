package db_test

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/expect"
)

// TestReserve: the reserve is made at the start, readable only by its owner. It grows with the part of the log that
// goes beyond the database file, and shrinks again when that part has been copied.
func TestReserve(t *testing.T) {
	t.Parallel()
	expect.OneThread(t)
	o := options(filepath.Join(t.TempDir(), "ckpt.db"), newClock())
	o.ReserveBytes = 1 << 20
	s := openWith(t, o)
	file := o.Path + "-reserve"
	if got := sizeOf(t, file); got < o.ReserveBytes || got > 3*o.ReserveBytes {
		t.Errorf("at the start it has %d bytes", got)
	}
	if info, err := os.Stat(file); err != nil || runtime.GOOS != "windows" && info.Mode() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	const saves, size = 30, 300_000
	for i := range saves {
		_, err := s.Save(t.Context(), ann, binary("a", ckpt.KindRecovery, noise(uint64(i), size)))
		must(t, err)
	}
	if got, waits := sizeOf(t, file), int64(saves*size)-sizeOf(t, o.Path); got < waits+o.ReserveBytes/2 {
		t.Errorf("it has %d bytes where %d wait in the log", got, waits)
	}
	must(t, s.EmptyWAL())
	s.Tick(time.Now())
	if got := sizeOf(t, file); got < o.ReserveBytes || got > 3*o.ReserveBytes {
		t.Errorf("after all was copied it has %d bytes", got)
	}
	if state, problems := s.Health(); state != "ready" {
		t.Errorf("%s, %q", state, problems)
	}
}

// TestDisturbedReserve: another process removes the file, cuts it, fills it or replaces it. The next round of
// maintenance makes it again, and saves continue.
func TestDisturbedReserve(t *testing.T) {
	t.Parallel()
	for name, disturb := range map[string]func(t *testing.T, file string){
		"removed": func(t *testing.T, file string) { must(t, os.Remove(file)) },
		"cut":     func(t *testing.T, file string) { must(t, os.Truncate(file, 0)) },
		"filled":  func(t *testing.T, file string) { must(t, os.Truncate(file, 40<<20)) },
		"replaced": func(t *testing.T, file string) {
			must(t, os.Remove(file))
			must(t, os.WriteFile(file, []byte("another"), 0o600))
		},
	} {
		t.Run(name, func(t *testing.T) {
			if runtime.GOOS == "windows" && strings.HasPrefix(name, "re") {
				t.Skip("Windows does not let an open file be removed")
			}
			o := options(filepath.Join(t.TempDir(), "ckpt.db"), newClock())
			o.ReserveBytes = 1 << 20
			s := openWith(t, o)
			save(t, s, ann, "a", ckpt.KindRoutine, `1`)
			disturb(t, o.Path+"-reserve")
			s.Tick(time.Now())
			if got := sizeOf(t, o.Path+"-reserve"); got < o.ReserveBytes || got > 3*o.ReserveBytes {
				t.Errorf("it has %d bytes", got)
			}
			save(t, s, ann, "a", ckpt.KindRoutine, `2`)
			if state, problems := s.Health(); state != "ready" {
				t.Errorf("%s, %q", state, problems)
			}
		})
	}
}

// TestVacuumThatWasNotCopied: the last daemon shortened the file, and ended before that was copied out of the log.
// This daemon then cuts the file, and must not blame another process for it.
func TestVacuumThatWasNotCopied(t *testing.T) {
	t.Parallel()
	o := options(filepath.Join(t.TempDir(), "ckpt.db"), newClock())
	s := openWith(t, o)
	ids := []string{}
	for i := range 10 {
		c, err := s.Save(t.Context(), ann, binary("a", ckpt.KindRecovery, noise(uint64(i), 300_000)))
		must(t, err)
		ids = append(ids, c.ID)
	}
	for _, id := range ids {
		_, err := s.Delete(t.Context(), ann, id)
		must(t, err)
	}
	s.CopyWAL()
	save(t, s, ann, "b", ckpt.KindRoutine, `1`)
	s.Tick(time.Now().Truncate(time.Minute))                             // this returns free pages
	killed := options(filepath.Join(t.TempDir(), "ckpt.db"), newClock()) // a clean end would copy the log
	for _, suffix := range []string{"", "-wal"} {
		replace(t, o.Path+suffix, killed.Path+suffix)
	}
	before := sizeOf(t, killed.Path)
	s = openWith(t, killed)
	s.CopyWAL()
	if now := sizeOf(t, killed.Path); now >= before {
		t.Fatalf("the file was not cut: it had %d bytes and has %d", before, now)
	}
	must(t, s.CheckFiles())
	save(t, s, ann, "a", ckpt.KindRoutine, `1`)
}

// TestACopyBesideAnotherIsNotWhole: if a copy of the log finds another copy in progress, SQLite reports that
// nothing was left to copy. The shrinking that a vacuum has announced is still to come then, and is not the work of
// another process.
func TestACopyBesideAnotherIsNotWhole(t *testing.T) {
	t.Parallel()
	o := options(filepath.Join(t.TempDir(), "ckpt.db"), newClock())
	s := openWith(t, o)
	for i := range 10 {
		c, err := s.Save(t.Context(), ann, binary("a", ckpt.KindRecovery, noise(uint64(i), 300_000)))
		must(t, err)
		_, err = s.Delete(t.Context(), ann, c.ID)
		must(t, err)
	}
	s.CopyWAL()
	save(t, s, ann, "b", ckpt.KindRoutine, `1`)
	reader := sqlite3Shell(t, o.Path, "BEGIN; SELECT count(*) FROM audit_log;", "-readonly")
	s.Tick(time.Now().Truncate(time.Minute)) // this returns free pages
	before := sizeOf(t, o.Path)
	ended := make(chan error, 1)
	begin := func() {
		other := tool(t, "sqlite3", "-cmd", ".timeout 60000", o.Path, "PRAGMA wal_checkpoint(FULL)") // it waits for the reader
		must(t, other.Start())
		go func() { ended <- other.Wait() }()
	}
	begin()
	expect.Soon(t, "the other copy to be under way", func() bool {
		select {
		case <-ended: // it collided with the copy that this test looks for, and SQLite does not wait for that
			begin()
		default:
		}
		return sqlite3(t, o.Path, "PRAGMA wal_checkpoint(PASSIVE)") == "1|-1|-1"
	})
	s.CopyWAL()
	_ = s.CheckFiles() // this records the size
	reader.close()
	must(t, <-ended)
	if now := sizeOf(t, o.Path); now >= before {
		t.Fatalf("the file was not cut: it had %d bytes and has %d", before, now)
	}
	save(t, s, ann, "a", ckpt.KindRoutine, `1`)
}

// TestNoReserve: no reserve is made if it is turned off, and an existing one is removed.
func TestNoReserve(t *testing.T) {
	t.Parallel()
	o := options(filepath.Join(t.TempDir(), "ckpt.db"), newClock())
	must(t, openWith(t, o).Close())
	o.ReserveBytes = -1
	s := openWith(t, o)
	save(t, s, ann, "a", ckpt.KindRoutine, `1`)
	if _, err := os.Lstat(o.Path + "-reserve"); !os.IsNotExist(err) {
		t.Errorf("the reserve is there: %v", err)
	}
}

// TestStrangeReserve: a file that cannot be the reserve is left alone, and prevents nothing.
func TestStrangeReserve(t *testing.T) {
	t.Parallel()
	strange := map[string]func(path string) error{
		"a folder": func(path string) error { return os.Mkdir(path, 0o700) },
		"two names": func(path string) error {
			if err := os.WriteFile(path, []byte("mine"), 0o600); err != nil {
				return err
			}
			return os.Link(path, path+".other")
		},
	}
	if runtime.GOOS != "windows" {
		strange["a link"] = func(path string) error { return os.Symlink("/dev/null", path) }
	}
	for name, make := range strange {
		t.Run(name, func(t *testing.T) {
			o := options(filepath.Join(t.TempDir(), "ckpt.db"), newClock())
			must(t, make(o.Path+"-reserve"))
			before, err := os.Lstat(o.Path + "-reserve")
			must(t, err)
			s := openWith(t, o)
			save(t, s, ann, "a", ckpt.KindRoutine, `1`)
			after, err := os.Lstat(o.Path + "-reserve")
			if err != nil || after.Mode() != before.Mode() || !after.IsDir() && after.Size() != before.Size() {
				t.Errorf("it was changed: %v", err)
			}
		})
	}
}
