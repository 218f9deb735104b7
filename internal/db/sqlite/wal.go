package sqlite

import (
	"cmp"
	"log/slog"
	"sync/atomic"
)

// The write-ahead log is copied into the file once about this much has been written. Then the
// leader makes one short copy itself between two batches, so that the log starts over and is
// overwritten in place, which costs half as much as growing it.
const (
	walTarget = 32 << 20
	LogAlarm  = 8 * walTarget // a reader holds a snapshot: say so
	copyTries = 10            // failures in a row before a log of that length is a fault
)

// wal says how the copying of the write-ahead log goes.
type wal struct {
	target   int64        // for tests: copy after this many bytes, not walTarget
	written  atomic.Int64 // pages that the writer has written in all
	copied   atomic.Int64 // the value of written when the log was last copied whole
	wrapDue  atomic.Bool  // the background copy is done: the leader can make the log start over
	failures atomic.Int64 // in a row
	page     int64        // the page size in bytes
	stuck    atomic.Bool  // it was copied, but could not start over: only the last part of a copy is flushed
	last     atomic.Int64 // when the last copy succeeded, Unix milliseconds
	lastErr  atomic.Value // string
	ownReads int          // how often in a row a read lock was found while no connection of ours reads
	long     atomic.Int64 // its length when that was last logged, 0 if it is not long
}

// tellLong logs that the log is long, and again each time it has doubled.
func (w *wal) tellLong(log *slog.Logger, bytes, copied int64) {
	switch said := w.long.Load(); {
	case bytes <= LogAlarm:
		w.long.Store(0)
	case bytes >= 2*said:
		w.long.Store(bytes)
		log.Warn("the write-ahead log is long, because a reader keeps an old snapshot open", "bytes", bytes, "copied", copied)
	}
}

func (w *wal) pending() int64 { return (w.written.Load() - w.copied.Load()) * w.page }

// full says that enough waits in the log for a copy.
func (w *wal) full() bool { return w.pending() >= w.aim() }

func (w *wal) aim() int64 { return cmp.Or(w.target, walTarget) }
