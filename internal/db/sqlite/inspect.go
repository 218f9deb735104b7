package sqlite

import (
	"context"
	"fmt"
	"time"
)

// What shows the inside of an engine, to who looks after it and to tests.

// CheckFiles answers what is wrong with the files, nil where nothing is.
func (e *Engine) CheckFiles() error { return e.watch.check() }

// LockedFor is for how long the writer has been kept from its lock, 0 where it
// is not.
func (e *Engine) LockedFor() time.Duration {
	locked, _ := e.writer.lockedFor()
	return locked
}

// CopyLog copies the write-ahead log into the database once, beside the writer.
func (e *Engine) CopyLog(ctx context.Context) { e.copyWAL(ctx) }

// SetLogTarget has the log copied after so many bytes instead of 32 MiB.
func (e *Engine) SetLogTarget(bytes int64) { e.wal.target = bytes }

// Ticker is one round of maintenance at a time. Its rounds remember one another.
func (e *Engine) Ticker() func(ctx context.Context, now time.Time) { return newDue(e).tick }

// RemakeReserve lets the reserve go and makes it again, as a full disk does on
// which deletes free a little.
func (e *Engine) RemakeReserve() error {
	return e.Write(&Op{Owner: Maintenance, outside: func() error {
		e.letGo()
		return e.regain()
	}})
}

// Left names what the engine still holds that its callers should have given
// back.
func (e *Engine) Left() (left []string) {
	add := func(what string, n int64) {
		if n != 0 {
			left = append(left, fmt.Sprintf("%s: %d", what, n))
		}
	}
	if w := e.writer; w != nil {
		w.mu.Lock()
		add("writes that wait", int64(w.queue.count))
		add("bytes that wait", w.queue.bytes)
		add("owners that wait", int64(len(w.queue.owners)))
		if w.leading {
			left = append(left, "somebody leads the writer")
		}
		w.mu.Unlock()
	}
	if e.watch != nil {
		e.watch.mu.Lock()
		add("copies of the log under way", int64(e.watch.copying))
		e.watch.mu.Unlock()
	}
	if e.ro != nil {
		add("readers at work", int64(e.ro.Stats().InUse))
	}
	return left
}
