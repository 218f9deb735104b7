package sqlite

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/jmoiron/sqlx"
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

// TestWhatWasWrittenIsKnownBeforeTheFileIsExamined: another program writes the database file during a transaction. The store learns that the
// transaction has committed before the store is asked about the file, so that the store does not miss its own rows.
func TestWhatWasWrittenIsKnownBeforeTheFileIsExamined(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ckpt.db")
	o := optionsAt(path, 1)
	known, examined := 0, 0
	o.Hooks.Ended = func(_ *Tx, committed bool) {
		if committed {
			known++
		}
	}
	o.Hooks.Examine = func(db *sqlx.DB, sound func() error) error {
		examined++
		var rows int
		if err := db.Get(&rows, `SELECT count(*) FROM t`); err != nil {
			return err
		}
		if rows != known {
			return fmt.Errorf("the file has %d rows, and the store knows %d", rows, known)
		}
		return sound()
	}
	e := openWith(t, o)
	known = 0
	for i := range 3 {
		err := e.Write(&Op{Do: func(tx *Tx) error {
			if err := os.Chtimes(path, time.Time{}, time.Now().Add(time.Duration(i+1)*time.Hour)); err != nil {
				return err
			}
			return tx.Exec(`INSERT INTO t VALUES (1, 1)`)
		}})
		if err != nil {
			t.Fatal(err)
		}
	}
	if examined == 0 {
		t.Error("the file was never examined")
	}
}
