package sqlite

import (
	"context"
	"fmt"
	"time"
)

// Methods that show the inside of an engine to operators and to tests.

// CheckFiles says what is wrong with the files, nil if nothing is.
func (e *Engine) CheckFiles() error { return e.watch.check() }

// LockedFor is for how long the writer could not get its lock, 0 if it can.
func (e *Engine) LockedFor() time.Duration {
	locked, _ := e.writer.lockedFor()
	return locked
}

// CopyLog copies the write-ahead log into the database once, beside the writer.
func (e *Engine) CopyLog(ctx context.Context) { e.copyWAL(ctx) }

// SetLogTarget makes the engine copy the log after this many bytes instead of 32 MiB.
func (e *Engine) SetLogTarget(bytes int64) { e.wal.target = bytes }

// Ticker returns a function that runs one round of maintenance. Its rounds share one record of when
// each part was last done.
func (e *Engine) Ticker() func(ctx context.Context, now time.Time) { return newDue(e).tick }

// RemakeReserve releases the reserve and makes it again, as happens when deletes free a little
// space on a full disk.
func (e *Engine) RemakeReserve() error {
	return e.Write(&Op{Owner: Maintenance, outside: func() error {
		e.letGo()
		return e.regain()
	}})
}

// Left names what callers should have given back and the engine still holds.
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
