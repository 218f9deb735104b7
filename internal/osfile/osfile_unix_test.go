//go:build unix

package osfile_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/ckptsidecar/ckptsidecar/internal/osfile"
	"github.com/ckptsidecar/ckptsidecar/internal/testenv"
)

// stranger is the uid of a user other than root.
const stranger = 4242

// TestMain lets the test binary play a process that changes its rights, because that affects the whole process.
func TestMain(m *testing.M) {
	if dir := os.Getenv("OSFILE_TEST_FOLDER"); dir != "" {
		os.Exit(playOwner(dir))
	}
	testenv.Main(m)
}

// playOwner prints the owner of the files that it makes: during, after, and finally with the owner's rights for
// good.
func playOwner(dir string) int {
	owner, err := osfile.Controller(dir)
	if err != nil {
		fmt.Println(err)
		return 1
	}
	makes := func(name string) func() error {
		return func() error { return os.WriteFile(filepath.Join(dir, name), nil, 0o600) }
	}
	for _, step := range []func() error{
		func() error { return owner.During(makes("during")) }, makes("after"), owner.Become, makes("at-last"),
	} {
		if err := step(); err != nil {
			fmt.Println(err)
			return 1
		}
	}
	if err := syscall.Setuid(0); err == nil {
		fmt.Println("root's rights came back")
		return 1
	}
	return 0
}

func TestModes(t *testing.T) {
	old := syscall.Umask(0o077)
	defer syscall.Umask(old)
	path := filepath.Join(t.TempDir(), "file")
	must(t, osfile.Write(path, nil, 0o640))
	wantMode(t, path, 0o640)
	must(t, os.Chmod(path, 0o604))
	must(t, osfile.Replace(path, []byte("x"), 0o600))
	wantMode(t, path, 0o604)
}

func wantMode(t *testing.T, path string, mode os.FileMode) {
	t.Helper()
	info, err := os.Lstat(path)
	must(t, err)
	if info.Mode().Perm() != mode {
		t.Errorf("the mode of %s is %v, want %v", path, info.Mode(), mode)
	}
}

func TestNotPlain(t *testing.T) {
	dir := t.TempDir()
	fifo, one, two := filepath.Join(dir, "fifo"), filepath.Join(dir, "one"), filepath.Join(dir, "two")
	must(t, syscall.Mkfifo(fifo, 0o600))
	must(t, os.WriteFile(one, nil, 0o600))
	must(t, os.Link(one, two))
	for _, path := range []string{fifo, one} {
		if f, err := osfile.OpenPlain(path, os.O_RDWR, 0); err == nil {
			t.Errorf("%s was opened", path)
			_ = f.Close()
		}
	}
}

// TestController finds the first owner who is not root, even behind a link.
func TestController(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root may give files away")
	}
	dir := t.TempDir()
	theirs, link := filepath.Join(dir, "theirs"), filepath.Join(dir, "link")
	below := filepath.Join(theirs, "below")
	must(t, os.MkdirAll(below, 0o755))
	must(t, os.Symlink(dir, link))
	for path, want := range map[string]int{dir: 0, below: 0, filepath.Join(link, "theirs"): 0} {
		wantController(t, path, want)
	}
	must(t, os.Chown(theirs, stranger, 77))
	must(t, os.Lchown(link, stranger+1, 0))
	for path, want := range map[string]int{
		dir: 0, theirs: stranger, below: stranger, filepath.Join(theirs, "none", "yet"): stranger, link: stranger + 1, filepath.Join(link, "theirs"): stranger + 1,
	} {
		wantController(t, path, want)
	}
	if owner, err := osfile.Controller(theirs); err != nil || owner.GID != 77 {
		t.Errorf("the group: %+v, %v", owner, err)
	}
	loop := filepath.Join(dir, "loop")
	must(t, os.Symlink(loop, loop))
	if _, err := osfile.Controller(filepath.Join(loop, "x")); err == nil {
		t.Error("a loop of links was followed to its end")
	}
}

func wantController(t *testing.T, path string, want int) {
	t.Helper()
	if owner, err := osfile.Controller(path); err != nil || owner.UID != want {
		t.Errorf("%s is controlled by %+v, %v, want uid %d", path, owner, err, want)
	}
}

// TestBecome: new files belong to the owner during a function and after Become, and to root in between.
func TestBecome(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root may become another user")
	}
	dir := t.TempDir()
	for d := dir; d != os.TempDir(); d = filepath.Dir(d) {
		must(t, os.Chmod(d, 0o755))
	}
	theirs := filepath.Join(dir, "theirs")
	must(t, os.Mkdir(theirs, 0o700))
	must(t, os.Chown(theirs, stranger, stranger))
	self, err := os.Executable()
	must(t, err)
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), "OSFILE_TEST_FOLDER="+theirs)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for name, want := range map[string]uint32{"during": stranger, "after": 0, "at-last": stranger} {
		info, err := os.Lstat(filepath.Join(theirs, name))
		must(t, err)
		if got := info.Sys().(*syscall.Stat_t).Uid; got != want {
			t.Errorf("%s belongs to %d, want %d", name, got, want)
		}
	}
}

// TestReplaceKeepsTheOwner: if root replaces another user's file, the file still belongs to that user.
func TestReplaceKeepsTheOwner(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root may give files away")
	}
	dir := t.TempDir()
	there, fresh := filepath.Join(dir, "there"), filepath.Join(dir, "fresh")
	must(t, os.WriteFile(there, nil, 0o600))
	must(t, os.Chown(there, stranger+1, 0))
	must(t, os.Chown(dir, stranger, 0))
	for path, want := range map[string]uint32{there: stranger + 1, fresh: stranger} {
		must(t, osfile.Replace(path, []byte("x"), 0o600))
		info, err := os.Lstat(path)
		must(t, err)
		if got := info.Sys().(*syscall.Stat_t).Uid; got != want {
			t.Errorf("%s belongs to %d, want %d", path, got, want)
		}
	}
}
