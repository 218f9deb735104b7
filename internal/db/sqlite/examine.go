package sqlite

import (
	"fmt"

	"github.com/jmoiron/sqlx"
)

// examine checks whether a database that another program has written is still the one that the
// writer knows. It uses a connection that has nothing of the database in memory. If a program has
// copied an older or another file over the database, examine finds that out. If a program has only
// copied the write-ahead log into the database, as the sqlite3 command does, examine accepts the
// file.
func (e *Engine) examine() error {
	e.log.Warn("another program has written the database file: examining it", "path", e.opt.Path)
	db, err := pool(e.opt.Path, "ro", 1, checkerPragmas)
	if err != nil {
		return err
	}
	defer db.Close()
	if err := e.opt.Hooks.Examine(db, func() error { return quickCheck(db) }); err != nil {
		return fmt.Errorf("%w: %w", errTouched, err)
	}
	e.watch.accept()
	return nil
}

func quickCheck(db *sqlx.DB) error {
	var result string
	if err := db.Get(&result, `PRAGMA quick_check(1)`); err != nil {
		return fmt.Errorf("it cannot be checked: %w", err)
	}
	if result != "ok" {
		return fmt.Errorf("it is damaged: %s", result)
	}
	return nil
}
