package db_test

import (
	"io"
	"os"
	"path/filepath"
	"testing"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

// TestNothingIsLeftAside: a daemon that is killed in an import leaves the text of the import beside
// the database. The next start removes it, so that it neither fills the disk nor outlives an erasure.
func TestNothingIsLeftAside(t *testing.T) {
	t.Parallel()
	_ = tool(t, "cp") // before the import begins
	path := filepath.Join(t.TempDir(), "ckpt.db")
	s := openWith(t, options(path, newClock()))
	reader, writer := io.Pipe()
	imported := make(chan error, 1)
	go func() {
		_, err := s.Import(t.Context(), ann, ckpt.ImportRequest{}, reader)
		imported <- err
	}()
	_, err := writer.Write([]byte("some text\n"))
	must(t, err)
	killed := filepath.Join(t.TempDir(), "killed")
	must(t, tool(t, "cp", "-r", filepath.Dir(path), killed).Run()) // opening the files here would drop SQLite's locks
	must(t, writer.Close())
	wantCode(t, <-imported, ckpt.CodeInvalid)

	files := func() map[string]bool {
		list, err := os.ReadDir(killed)
		must(t, err)
		names := map[string]bool{}
		for _, file := range list {
			names[file.Name()] = true
		}
		return names
	}
	before := len(files())
	other := ".another.db-aside-1"
	write(t, filepath.Join(killed, other), nil)
	must(t, openWith(t, options(filepath.Join(killed, filepath.Base(path)), newClock())).Close())
	own, err := os.ReadDir(filepath.Dir(path))
	must(t, err)
	wanted := map[string]bool{other: true}
	for _, file := range own {
		wanted[file.Name()] = true
	}
	for name := range files() {
		if !wanted[name] {
			t.Errorf("%s is left", name)
		}
	}
	if !files()[other] {
		t.Error("the file of another database was removed")
	}
	if before <= len(own) {
		t.Errorf("the import had no file aside: %d files, %d without it", before, len(own))
	}
}
