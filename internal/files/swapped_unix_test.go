//go:build unix

package files

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// TestASwappedFileIsNotRead: the file that is opened must be the file that was looked at. Between the two, another program can put another
// file, a link or a device in its place.
func TestASwappedFileIsNotRead(t *testing.T) {
	seen, opened := t.TempDir(), t.TempDir()
	for folder, text := range map[string]string{seen: "seen", opened: "another"} {
		if err := os.WriteFile(filepath.Join(folder, "f"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, c := range map[string]struct {
		root string
		want error
	}{"the same": {seen, nil}, "another": {opened, errChanged}} {
		root, err := os.OpenRoot(c.root)
		if err != nil {
			t.Fatal(err)
		}
		_, data, err := readOnce(seen, root, Listed{Path: "f"}, 1000, nil)
		if !errors.Is(err, c.want) || err == nil && string(data) != "seen" {
			t.Errorf("%s: %q, %v", name, data, err)
		}
		_ = root.Close()
	}
}

// TestDevicesAreNotRead: neither a pipe nor a device nor a socket nor a link is read, and a pipe without a writer keeps nobody.
func TestDevicesAreNotRead(t *testing.T) {
	dir := t.TempDir()
	if err := syscall.Mkfifo(filepath.Join(dir, "pipe"), 0o600); err != nil {
		t.Skip(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "target"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("target", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	for _, name := range []string{"pipe", "link", "."} {
		if _, data, err := readOnce(dir, root, Listed{Path: name}, 1000, nil); err == nil {
			t.Errorf("%s was read: %q", name, data)
		}
		if text, err := readPlain(filepath.Join(dir, name), 1000); err == nil || !errors.Is(err, errNotRegular) {
			t.Errorf("%s was read as a plain file: %q, %v", name, text, err)
		}
	}
	if _, err := os.Stat("/dev/zero"); err == nil {
		if text, err := readPlain("/dev/zero", 1000); !errors.Is(err, errNotRegular) {
			t.Errorf("a device was read: %d bytes, %v", len(text), err)
		}
	}
}

// TestGitGetsNoRepositoryFromOutside: variables with which a hook of git names its own repository, or with which anybody names programs
// and settings, do not reach git. A scan finds the files of its folder whatever they say.
func TestGitGetsNoRepositoryFromOutside(t *testing.T) {
	env := gitEnvironment([]string{"PATH=/bin", "GIT_DIR=/other", "git_work_tree=/other", "GIT_INDEX_FILE=/i", "GIT_CONFIG_COUNT=1", "GIT_EXEC_PATH=/x",
		"GIT_SSH_COMMAND=/x", "GIT_CEILING_DIRECTORIES=/", "HOME=/home/x"}, "")
	for _, v := range env {
		if strings.Contains(v, "/other") || strings.Contains(v, "/x") && !strings.HasPrefix(v, "HOME=") || strings.HasPrefix(v, "GIT_CEILING") || strings.HasPrefix(v, "GIT_INDEX") || strings.HasPrefix(v, "GIT_CONFIG") {
			t.Errorf("git gets %s", v)
		}
	}
	for _, v := range []string{"PATH=/bin", "HOME=/home/x", "GIT_NO_LAZY_FETCH=1", "GIT_ALLOW_PROTOCOL=none", "GIT_TERMINAL_PROMPT=0", "GIT_OPTIONAL_LOCKS=0"} {
		if !slices.Contains(env, v) {
			t.Errorf("git does not get %s", v)
		}
	}
}
