package systems

import (
	"os"
	"path/filepath"
	"testing"
)

// TestFindKeepsTheName: a program is started under the requested name. Debian's redis-server is a link to
// redis-check-rdb, which does other work under its own name.
func TestFindKeepsTheName(t *testing.T) {
	bin, lib := t.TempDir(), t.TempDir()
	t.Setenv("PATH", bin)
	for link, real := range map[string]string{"server": "checker", "initdb": "initdb"} {
		if err := os.WriteFile(filepath.Join(lib, real), nil, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(filepath.Join(lib, real), filepath.Join(bin, link)); err != nil {
			t.Skipf("links cannot be made here: %v", err)
		}
	}
	w := &Workshop{}
	if got, want := w.find("", "server", nil), filepath.Join(bin, "server"); got != want {
		t.Errorf("the server is %s, want %s", got, want)
	}
	if got, want := w.find("", "initdb", nil), filepath.Join(lib, "initdb"); got != want {
		t.Errorf("initdb is %s, want %s, beside its other files", got, want)
	}
}
