package sqlite

import (
	"os"
	"path/filepath"
	"testing"
)

// TestACopyBeforeAVacuumCommitsTakesNothingBack: a copy of the log that began and ended before a vacuum was
// committed or rolled back does not contain it. The next copy shortens the file, perhaps before the vacuum's own
// writer has reported its commit.
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
	copied() // copies what was there before
	size(4 * PageSize)
	copied() // copies the vacuum
	ended()
	copied()
	w.vacuuming()()
	w.willShrink(3 * PageSize)
	copied() // copies all, but SQLite keeps the file's length because there is another commit meanwhile
	size(3 * PageSize)
	copied()
	size(2 * PageSize)
	if err := w.check(); err == nil {
		t.Error("a file that was cut by somebody else is not noticed any more")
	}
}
