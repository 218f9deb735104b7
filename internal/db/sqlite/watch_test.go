package sqlite

import (
	"os"
	"path/filepath"
	"testing"
)

// TestACopyBeforeAVacuumCommitsTakesNothingBack: a copy of the log that began and ended while a vacuum was neither
// committed nor given up does not have it. The next one, which makes the file shorter, may come before the vacuum's own
// writer has said that it has committed.
func TestACopyBeforeAVacuumCommitsTakesNothingBack(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ckpt.db")
	size := func(bytes int64) {
		t.Helper()
		if err := os.Truncate(path, bytes); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	size(10 * PageSize)
	w, err := watchFile(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	copied := func() {
		t.Helper()
		w.writing(false)(true, false)
		if err := w.check(); err != nil {
			t.Fatal(err)
		}
	}
	ended := w.vacuuming()
	w.willShrink(4 * PageSize)
	copied() // of what was there before
	size(4 * PageSize)
	copied() // of the vacuum
	ended()
	copied()
	w.vacuuming()()
	w.willShrink(3 * PageSize)
	copied() // all of it, and SQLite leaves the file as long as it is, because somebody commits meanwhile
	size(3 * PageSize)
	copied()
	size(2 * PageSize)
	if err := w.check(); err == nil {
		t.Error("a file that was cut by somebody else is not noticed any more")
	}
}
