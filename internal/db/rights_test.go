//go:build linux

package db_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/expect"
)

// nobody is a user without rights.
const nobody = 65534

// TestRights starts as another user who lacks one right at a time: the result
// is one clear line, the OperatorError that stops restarts, and no change.
func TestRights(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("only root may become another user")
	}
	cases := map[string]struct {
		make func(t *testing.T, dir string)
		says string
	}{
		"read-only folder": {func(t *testing.T, dir string) {}, "check who owns it"},
		"missing folder":   {func(t *testing.T, dir string) { must(t, os.Remove(dir)) }, "folder"},
		"owner of the file": {func(t *testing.T, dir string) {
			replace(t, closedDatabase(t), filepath.Join(dir, "ckpt.db"))
			must(t, os.Chown(dir, nobody, nobody))
		}, "this user"},
		"read-only file": {func(t *testing.T, dir string) {
			path := filepath.Join(dir, "ckpt.db")
			replace(t, closedDatabase(t), path)
			must(t, os.Chmod(path, 0o444))
			must(t, os.Chown(dir, nobody, nobody))
		}, "this user"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(openFolder(t), "data")
			must(t, os.Mkdir(dir, 0o755))
			c.make(t, dir)
			said := startChild(t, "hold", filepath.Join(dir, "ckpt.db"), nobody).all(t)
			if len(said) != 1 || !strings.HasPrefix(said[0], "open true false ") || !strings.Contains(said[0], c.says) {
				t.Errorf("the start said %q", said)
			}
		})
	}
}

// TestReadOnlyFileSystem: the start is refused on a read-only file system.
func TestReadOnlyFileSystem(t *testing.T) {
	t.Parallel()
	from := closedDatabase(t)
	dir := mountTmpfs(t, "4m")
	path := filepath.Join(dir, "ckpt.db")
	replace(t, from, path)
	write(t, path+".lock", nil)
	var err error
	expect.Soon(t, "no process to write there", func() bool { // a child that another test starts has our files until it executes
		err = syscall.Mount("", dir, "", syscall.MS_REMOUNT|syscall.MS_RDONLY, "")
		return !errors.Is(err, syscall.EBUSY)
	})
	must(t, err)
	said := startChild(t, "hold", path, 0).all(t)
	if len(said) != 1 || !strings.HasPrefix(said[0], "open true false ") {
		t.Errorf("the start said %q", said)
	}
}

// TestAuditorWithoutRights reads as a user who cannot write the files or their
// folder, while the store is open and after a clean stop.
func TestAuditorWithoutRights(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("only root may become another user")
	}
	o := options(filepath.Join(openFolder(t), "ckpt.db"), newClock())
	o.Mode = 0o644
	s := openWith(t, o)
	save(t, s, ann, "a", ckpt.KindRoutine, `1`)
	check := func() {
		t.Helper()
		cmd := tool(t, "sqlite3", "-readonly", o.Path, "SELECT state FROM audit_states")
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
		if out, err := cmd.CombinedOutput(); err != nil || string(out) != "1\n" {
			t.Errorf("the auditor reads %q, %v", out, err)
		}
		cmd = tool(t, "sqlite3", o.Path, "DELETE FROM checkpoints")
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
		if out, err := cmd.CombinedOutput(); err == nil {
			t.Errorf("the auditor has written: %s", out)
		}
	}
	sqlite3(t, "-version")
	check()
	must(t, s.Close())
	check()
}

// mountTmpfs mounts a separate file system of the given size for the test.
func mountTmpfs(t testing.TB, size string) string {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("only root may mount a file system")
	}
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size="+size); err != nil {
		t.Skipf("no file system can be mounted here: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return dir
}
