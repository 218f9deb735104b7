package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/ckptsidecar/ckptsidecar/internal/db"
	"github.com/ckptsidecar/ckptsidecar/internal/retention"
)

// planter is the uid of a user who plants links for root to follow.
const planter = 4242

// planted is a folder of another user, below folders that everybody may enter.
func planted(t *testing.T) (folder string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root works in folders of others")
	}
	above := t.TempDir()
	for dir := above; dir != os.TempDir(); dir = filepath.Dir(dir) {
		must(t, os.Chmod(dir, 0o755))
	}
	folder = filepath.Join(above, "theirs")
	must(t, os.Mkdir(folder, 0o755))
	must(t, os.Chown(folder, planter, planter))
	return folder
}

// precious is a file of root that must not be changed. The returned function checks that.
func precious(t *testing.T) (path string, untouched func()) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "precious")
	const text = `{"precious": true}`
	must(t, os.WriteFile(path, []byte(text), 0o600))
	return path, func() {
		t.Helper()
		info, err := os.Lstat(path)
		must(t, err)
		if now := read(t, path); now != text || info.Mode().Perm() != 0o600 || info.Sys().(*syscall.Stat_t).Uid != 0 {
			t.Errorf("root's file became %q, %v", now, info.Mode())
		}
	}
}

// asRoot runs the program in a separate process, which can give up its rights.
func asRoot(t *testing.T, env []string, args ...string) (out string, err error) {
	t.Helper()
	self, err := os.Executable() // it is the program for a test: see TestMain
	must(t, err)
	cmd := exec.Command(self, args...)
	cmd.Env = append(os.Environ(), env...)
	text, err := cmd.CombinedOutput()
	return string(text), err
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestHookInstallAsRootFollowsNoLinkOfAnother runs `sudo ckptsidecar hook install` in a home whose owner has made
// the settings a link to a file of root.
func TestHookInstallAsRootFollowsNoLinkOfAnother(t *testing.T) {
	folder := planted(t)
	target, untouched := precious(t)
	file := filepath.Join(folder, "settings.json")
	must(t, os.Symlink(target, file))
	if out, err := asRoot(t, nil, "hook", "install", "--for", "claude-code", "--file", file, "--yes"); err == nil {
		t.Errorf("it was written: %s", out)
	}
	untouched()
	must(t, os.Remove(file))
	if out, err := asRoot(t, nil, "hook", "install", "--for", "claude-code", "--file", file, "--yes"); err != nil {
		t.Fatalf("without a link: %v, %s", err, out)
	}
	info, err := os.Lstat(file)
	must(t, err)
	if uid := info.Sys().(*syscall.Stat_t).Uid; uid != planter {
		t.Errorf("the settings belong to uid %d, not to the owner of the home", uid)
	}
}

// TestRestoreBackupAsRootFollowsNoLinkOfAnother: the service's user has planted links to a file of root at every
// name that restore-backup writes. Root restores from a backup that this user may not read.
func TestRestoreBackupAsRootFollowsNoLinkOfAnother(t *testing.T) {
	t.Parallel()
	folder := planted(t)
	target, untouched := precious(t)
	path, backup := filepath.Join(folder, "ckpt.db"), filepath.Join(t.TempDir(), "backup.db")
	env := []string{"CKPTSIDECAR_DB=" + path}
	demo := filepath.Join(t.TempDir(), "ckpt.db")
	makeDatabase(t, demo)
	if out, err := asRoot(t, nil, "backup", "--db", demo, backup); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, name := range []string{".failed", ".restoring", "-reserve", "-wal", "-shm", ".lock", ""} {
		link := path + name
		must(t, os.Symlink(target, link))
		out, err := asRoot(t, env, "restore-backup", backup)
		untouched()
		if err == nil {
			t.Logf("with a link at %s: %s", filepath.Base(link), out)
			wantOwner(t, folder, planter)
		} else {
			t.Logf("with a link at %s: refused, %s", filepath.Base(link), out)
		}
		must(t, clearFolder(folder))
	}
	if out, err := asRoot(t, env, "restore-backup", backup); err != nil {
		t.Fatalf("without a link: %v, %s", err, out)
	}
	wantOwner(t, folder, planter)
}

// TestToolsSayThatTheyMayNotRead: a user who may not read the database of a shared daemon is not told that there is
// none, or that it is damaged.
func TestToolsSayThatTheyMayNotRead(t *testing.T) {
	t.Parallel()
	folder, dir := planted(t), t.TempDir()
	must(t, os.Chmod(dir, 0o755)) // its parents may be entered: see planted
	self, err := os.Executable()
	must(t, err)
	program := filepath.Join(dir, "ckptsidecar")
	bytes, err := os.ReadFile(self)
	must(t, err)
	must(t, os.WriteFile(program, bytes, 0o755))
	for _, mode := range []os.FileMode{0o700, 0o755} { // of the folder: the file is closed in both
		theirs := filepath.Join(dir, fmt.Sprintf("%o", mode))
		must(t, os.Mkdir(theirs, 0o755))
		path := filepath.Join(theirs, "ckpt.db")
		makeDatabase(t, path)
		must(t, os.Chmod(theirs, mode))
		for _, args := range [][]string{{"verify", "--db", path}, {"backup", "--db", path, filepath.Join(folder, "copy.db")}} {
			cmd := exec.Command(program, args...)
			cmd.Env = os.Environ()
			cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: planter, Gid: planter}}
			out, err := cmd.CombinedOutput()
			if err == nil || !strings.Contains(string(out), "run this as the daemon's user or as root") || strings.Contains(string(out), "no database") {
				t.Errorf("%s in a folder with mode %v: %v, %s", args[0], mode, err, out)
			}
		}
	}
}

// wantOwner checks the owner of all files in a folder.
func wantOwner(t *testing.T, folder string, uid uint32) {
	t.Helper()
	entries, err := os.ReadDir(folder)
	must(t, err)
	for _, entry := range entries {
		info, err := entry.Info()
		must(t, err)
		if got := info.Sys().(*syscall.Stat_t).Uid; got != uid && info.Mode().IsRegular() {
			t.Errorf("%s belongs to uid %d, want %d", entry.Name(), got, uid)
		}
	}
}

func clearFolder(folder string) error {
	entries, err := os.ReadDir(folder)
	for _, entry := range entries {
		err = errors.Join(err, os.RemoveAll(filepath.Join(folder, entry.Name())))
	}
	return err
}

// makeDatabase makes an empty database.
func makeDatabase(t *testing.T, path string) {
	t.Helper()
	s, err := db.Open(t.Context(), db.Options{Path: path, Retention: retention.Plan})
	must(t, err)
	must(t, s.Close())
}

// TestBackupAsRootInAFolderOfAnother: the copy belongs to root, because it contains what all users have saved.
func TestBackupAsRootInAFolderOfAnother(t *testing.T) {
	folder, path := planted(t), filepath.Join(t.TempDir(), "ckpt.db")
	makeDatabase(t, path)
	if out, err := asRoot(t, nil, "backup", "--db", path, filepath.Join(folder, "backup.db")); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	wantOwner(t, folder, 0)
}
