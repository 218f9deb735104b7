package db

import (
	"fmt"
)

// examine looks whether a database that somebody else has written still is the
// one that the writer knows, on a connection that has none of it in memory.
// Whoever copies an older file or something else over it is found out; whoever
// only copied the write-ahead log, with the sqlite3 command, is not in the way.
func (s *Store) examine(head chainHead) error {
	s.log.Warn("another program has written the database file: examining it", "path", s.opt.Path)
	db, err := pool(s.opt.Path, "ro", 1, verifierPragmas)
	if err != nil {
		return err
	}
	defer db.Close()
	var now chainHead
	if err := db.QueryRowx(`SELECT n, hash FROM audit_head`).Scan(&now.n, &now.hash); err != nil {
		return touched("the head of its audit log cannot be read: %w", err)
	}
	if now != head {
		return touched("its audit log ends with row %d, not with row %d", now.n, head.n)
	}
	var result string
	if err := db.Get(&result, `PRAGMA quick_check(1)`); err != nil {
		return touched("it cannot be checked: %w", err)
	}
	if result != "ok" {
		return touched("it is damaged: %s", result)
	}
	var rows, gaps int64
	err = db.QueryRowx(`SELECT count(*), coalesce(sum(prev <> before), 0) FROM
		(SELECT prev, lag(hash, 1, '') OVER (ORDER BY n) AS before FROM audit_log)`).Scan(&rows, &gaps)
	if err != nil {
		return touched("its audit log cannot be read: %w", err)
	}
	if rows != head.n || gaps > 0 {
		return touched("its audit log has %d rows of %d, and %d that do not follow the row before", rows, head.n, gaps)
	}
	s.watch.accept()
	s.othersWrote() // none of these checks looks into the states
	return nil
}

func touched(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{errTouched}, args...)...)
}
