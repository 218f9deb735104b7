package osfile_test

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/ckptsidecar/ckptsidecar/internal/osfile"
)

func TestWrite(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "file")
	for _, text := range []string{"one", "two"} {
		must(t, osfile.Write(path, []byte(text), 0o640))
		if got := read(t, path); got != text {
			t.Errorf("it holds %q", got)
		}
	}
	broken := errors.New("broken")
	if err := osfile.Fill(path, 0o600, func(w io.Writer) error { return broken }); !errors.Is(err, broken) {
		t.Errorf("a failed fill: %v", err)
	}
	if got := read(t, path); got != "two" {
		t.Errorf("a failed fill left %q", got)
	}
	if entries, _ := os.ReadDir(dir); len(entries) != 1 {
		t.Errorf("left over: %v", entries)
	}
	if err := osfile.Write(filepath.Join(dir, "none", "file"), nil, 0o600); err == nil {
		t.Error("a file in a folder that is missing was written")
	}
}

// TestLinksAreNotFollowed: the target of a link does not change.
func TestLinksAreNotFollowed(t *testing.T) {
	dir := t.TempDir()
	target, link := filepath.Join(dir, "target"), filepath.Join(dir, "link")
	must(t, os.WriteFile(target, []byte("precious"), 0o600))
	if err := os.Symlink(target, link); err != nil {
		t.Skipf("no links here: %v", err)
	}
	for _, flag := range []int{os.O_RDONLY, os.O_RDWR, os.O_RDWR | os.O_CREATE} {
		if f, err := osfile.OpenPlain(link, flag, 0o600); err == nil {
			t.Errorf("a link was opened with flags %#x", flag)
			_ = f.Close()
		}
	}
	dangling := filepath.Join(dir, "dangling")
	must(t, os.Symlink(filepath.Join(dir, "made"), dangling))
	if _, err := osfile.OpenPlain(dangling, os.O_RDWR|os.O_CREATE, 0o600); err == nil {
		t.Error("a file was made through a link")
	}
	if err := osfile.Replace(link, []byte("new"), 0o600); err == nil {
		t.Error("Replace took a link for a file")
	}
	must(t, osfile.Write(link, []byte("new"), 0o600))
	if read(t, target) != "precious" || read(t, link) != "new" {
		t.Error("Write followed a link")
	}
}

func TestOpenPlain(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "file")
	f, err := osfile.OpenPlain(path, os.O_RDWR|os.O_CREATE, 0o600)
	must(t, err)
	must(t, f.Close())
	if f, err := osfile.OpenPlain(dir, os.O_RDONLY, 0); err == nil {
		t.Error("a folder was opened")
		_ = f.Close()
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	must(t, err)
	return string(text)
}
