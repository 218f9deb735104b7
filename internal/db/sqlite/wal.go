package sqlite

import (
	"cmp"
	"log/slog"
	"sync/atomic"
)

// The write-ahead log is copied into the file once about so much has been written.
// Then the writer makes one short copy itself between two batches, so that the log
// begins anew and is overwritten in place, which costs half of growing it.
const (
	walTarget = 32 << 20
	LogAlarm  = 8 * walTarget // somebody holds a snapshot: say so
	copyTries = 10            // failures in a row, before a log of that length is a fault
)

// wal is how the copying of the write-ahead log goes.
type wal struct {
	target   int64        // tests: copy after so many bytes, not walTarget
	written  atomic.Int64 // pages written by the writer in all
	copied   atomic.Int64 // written, when the log was last copied whole
	wrapDue  atomic.Bool  // the background copy is done: the writer may make the log begin anew
	failures atomic.Int64 // in a row
	page     int64        // the bytes of a page
	stuck    atomic.Bool  // it was copied, and could not be made to begin anew: only the last part of a copy is flushed
	last     atomic.Int64 // when the last copy succeeded, Unix milliseconds
	lastErr  atomic.Value // string
	ownReads int          // how often in a row a lock to read was found that nobody of us reads with; the writer's
	long     atomic.Int64 // how long it was when that was last said, 0 where it is not
}

// tellLong says that the log is long, and again each time it has doubled.
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

// full says that enough waits in the log to be copied.
func (w *wal) full() bool { return w.pending() >= w.aim() }

func (w *wal) aim() int64 { return cmp.Or(w.target, walTarget) }
