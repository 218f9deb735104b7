package sqlite

import (
	"fmt"

	"github.com/jmoiron/sqlx"
)

// examine looks whether a database that somebody else has written still is the
// one that the writer knows, on a connection that has none of it in memory.
// Whoever copies an older file or something else over it is found out; whoever
// only copied the write-ahead log, with the sqlite3 command, is not in the way.
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
