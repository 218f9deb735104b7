package sqlite

import (
	"fmt"

	"modernc.org/sqlite"
)

// copyFailed counts failures. Saves continue, but not forever: if a log grows and cannot be copied,
// a new process must look at it while its size is still bounded.
func (e *Engine) copyFailed(err error) {
	e.wal.lastErr.Store(err.Error())
	n := e.wal.failures.Add(1)
	if n == 1 || n%60 == 0 {
		e.log.Error("the write-ahead log could not be copied into the database", "times", n, "error", err)
	}
	_, size := e.Sizes()
	if size = max(size, e.wal.pending()); n >= copyTries && size > LogAlarm && Classify(err) != ClassFull {
		_ = e.writer.stop(&FatalError{fmt.Errorf("the write-ahead log has %d MiB, and could not be copied into the "+
			"database %d times in a row: %w", size>>20, n, err)})
	}
}

// begunAnew notes whether the log could be flushed into the database and start over. A copy beside
// the writer cannot show that.
func (e *Engine) begunAnew(err error) {
	e.wal.stuck.Store(err != nil)
	if err != nil {
		e.copyFailed(err)
		return
	}
	e.wal.failures.Store(0)
}

// pagesWritten counts the pages that the writer has put into the log.
func (w *writer) pagesWritten() (pages int64) {
	err := w.conn.Raw(func(conn any) error {
		current, _, err := conn.(sqlite.DBStatus).Status(sqlite.DBStatusCacheWrite, false)
		pages = int64(current)
		return err
	})
	if err != nil {
		return w.engine.wal.written.Load()
	}
	return pages
}

// copyLog copies all of the log on the writer; after that the log starts over.
func (w *writer) copyLog() error {
	var row struct {
		Busy int64 `db:"busy"`
		Log  int64 `db:"log"`
		Done int64 `db:"checkpointed"`
	}
	s := w.engine
	ended := s.watch.writing(false)
	_, err := w.reading().Get(&row, `PRAGMA wal_checkpoint(PASSIVE)`)
	whole := err == nil && row.Busy == 0 && row.Log == row.Done // while another copy runs, it is busy, and both are -1
	ended(whole, false)
	w.gotOn()
	if s.begunAnew(err); err != nil {
		return err
	}
	if !whole {
		return errSnapshot
	}
	s.wal.copied.Store(w.pagesWritten())
	return nil
}

// cutLog copies all of the log on the writer and truncates it to nothing. It returns false if a reader's snapshot is in
// the way.
func (w *writer) cutLog() (cut bool, err error) {
	var row struct {
		Busy int64 `db:"busy"`
		Log  int64 `db:"log"`
		Done int64 `db:"checkpointed"`
	}
	ended := w.engine.watch.writing(true)
	_, err = w.reading().Get(&row, `PRAGMA wal_checkpoint(TRUNCATE)`)
	cut = err == nil && row.Busy == 0
	ended(cut, cut)
	w.gotOn()
	if cut {
		w.engine.begunAnew(nil)
		w.engine.wal.copied.Store(w.pagesWritten())
	}
	return cut, err
}

// maintainBetween is the maintenance that the leader itself does between two batches. It counts the
// written pages. If a copy has just been made, it makes the short second copy after which the log
// starts over.
func (e *Engine) maintainBetween(w *writer) {
	e.wal.written.Store(w.pagesWritten())
	if !e.wal.wrapDue.CompareAndSwap(true, false) {
		return
	}
	_ = w.copyLog() // it counts its own failures
}
