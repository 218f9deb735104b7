package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
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

// precious is a file of root's that is not to be touched. The function that it answers checks that.
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

// asRoot runs the program as a process of its own, which may give up its rights.
func asRoot(t *testing.T, env []string, args ...string) (out string, err error) {
	t.Helper()
	self, err := os.Executable()
	must(t, err)
	program := filepath.Join(t.TempDir(), "ckptsidecar") // the name by which the test binary is the program
	must(t, os.Symlink(self, program))
	cmd := exec.Command(program, args...)
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

// TestHookInstallAsRootFollowsNoLinkOfAnother: `sudo ckptsidecar hook install` in a home whose owner has made the
// settings a link to a file of root's.
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
