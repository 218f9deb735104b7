//go:build linux || darwin

package endpoint

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func wantRefusedFolder(t *testing.T, path string) {
	t.Helper()
	l, err := Listen(t.Context(), Options{Path: path})
	if err == nil {
		l.Close()
		t.Fatal("others could replace this socket, and it was made")
	}
	if !strings.Contains(err.Error(), "--socket") || !strings.Contains(err.Error(), "replace") {
		t.Errorf("%q does not say why and what to do", err)
	}
}

func TestFolderWritableByOthersIsRefused(t *testing.T) {
	for _, mode := range []os.FileMode{0o775, 0o757, 0o777, 0o777 | os.ModeSticky, 0o770} {
		t.Run(mode.String(), func(t *testing.T) {
			dir := folder(t)
			must(t, os.Chmod(dir, mode))
			wantRefusedFolder(t, filepath.Join(dir, "s"))
		})
	}
}

func TestFolderOfAnotherUserIsRefused(t *testing.T) {
	needRoot(t)
	dir := folder(t)
	must(t, os.Chown(dir, 1000, 1000))
	wantRefusedFolder(t, filepath.Join(dir, "s"))
}

func TestFolderThatCanBeRenamedAwayIsRefused(t *testing.T) {
	open := filepath.Join(folder(t), "open")
	must(t, os.Mkdir(open, 0o755))
	must(t, os.Chmod(open, 0o777))
	wantRefusedFolder(t, filepath.Join(open, "mine", "s"))
	if _, err := os.Lstat(filepath.Join(open, "mine")); err == nil {
		t.Error("it made a folder in a place it does not trust")
	}
	link := filepath.Join(folder(t), "link")
	must(t, os.Chmod(open, 0o755))
	must(t, os.Mkdir(filepath.Join(open, "mine"), 0o755))
	must(t, os.Chmod(open, 0o777))
	must(t, os.Symlink(filepath.Join(open, "mine"), link))
	wantRefusedFolder(t, filepath.Join(link, "s"))
}

func TestFolderBehindALinkIsFine(t *testing.T) {
	dir := folder(t)
	must(t, os.Mkdir(filepath.Join(dir, "run"), 0o755))
	must(t, os.Symlink("run", filepath.Join(dir, "var-run")))
	listen(t, Options{Path: filepath.Join(dir, "var-run", "s")})
}

func TestFolderThatIsAFile(t *testing.T) {
	dir := folder(t)
	must(t, os.WriteFile(filepath.Join(dir, "file"), nil, 0o600))
	if _, err := Listen(t.Context(), Options{Path: filepath.Join(dir, "file", "s")}); err == nil {
		t.Error("a file was taken for a folder")
	}
}
