package sqlite

import (
	"fmt"
	"slices"
	"time"
)

// protocol is SQLITE_PROTOCOL: SQLite has tried for ten seconds to take a lock of the write-ahead log that is only ever
// held for a short time. The locks of the file system do not work.
const protocol = 15

// lockTrouble finds out why a lock did not become free. The leader calls it outside a transaction. If this process
// holds the lock, the lock was not released although the process asked for that, and it never becomes free. The result
// is nil if another program holds the lock.
func (w *writer) lockTrouble(err error) *FatalError {
	if Code(err) == protocol {
		return w.engine.brokenLocks(err)
	}
	if !w.engine.lockHolder().ours() {
		return nil
	}
	switch again := w.probe(); {
	case again == nil:
		return nil
	case Classify(again) == ClassTransient && w.engine.lockHolder().ours():
		return &FatalError{lockFault{fmt.Errorf("this process could not release its own lock of %s: %w", w.engine.opt.Path, again)}}
	}
	return nil
}

// ownReadsMost is how often in a row the check must find a read lock while none of our connections reads. A lock that
// is just being taken or released may be found once.
const ownReadsMost = 3

// suspectOwnReads finds out why the log cannot be copied whole. The leader calls it. If this process holds a read lock
// while none of its connections reads, the lock was not released although the process asked for that. Such a lock would
// keep the log from starting over until the disk is full.
func (w *writer) suspectOwnReads() error {
	s := w.engine
	busy := func() bool { return s.ro.Stats().InUse > 0 || readingBeside.Load() > 0 }
	if busy() {
		return nil
	}
	held := s.holdsReadLock()
	if busy() {
		return nil
	}
	if s.wal.ownReads++; !held {
		s.wal.ownReads = 0
	}
	if s.wal.ownReads < ownReadsMost {
		return nil
	}
	return w.stop(&FatalError{lockFault{fmt.Errorf("this process could not release its own read lock of %s, so "+
		"the write-ahead log cannot be reset", s.opt.Path)}})
}

// probe checks whether the writer gets its lock. It writes nothing.
func (w *writer) probe() error {
	err := w.do(`BEGIN IMMEDIATE`)
	if err == nil {
		err = w.do(`ROLLBACK`)
	}
	w.noteLock(err)
	return err
}

// metRead stops the writer if a read has met locks that do not work: each further statement would block for ten
// seconds.
func (e *Engine) metRead(err error) {
	if Code(err) == protocol && e.writer != nil {
		_ = e.writer.stop(e.brokenLocks(err))
	}
}

func (e *Engine) brokenLocks(err error) *FatalError {
	return &FatalError{lockFault{fmt.Errorf("the locks of %s do not work: %w", e.opt.Path, err)}}
}

// noteLock notes whether the writer got its lock. Trying again is not progress; only getting the lock is.
func (w *writer) noteLock(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case Classify(err) != ClassTransient:
		w.locked = lockedOut{}
	case w.locked.since.IsZero():
		w.locked.since = time.Now()
	}
}

// noteRefused notes that a caller was told busy because the lock was not free. The daemon's own work does not count.
func (w *writer) noteRefused(batch []*Op) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.locked.since.IsZero() && slices.ContainsFunc(batch, func(o *Op) bool { return o.Owner != Maintenance }) {
		w.locked.refused = true
	}
}

// lockedFor is for how long the writer could not get its lock, 0 if it can, and whether a caller was told busy.
func (w *writer) lockedFor() (since time.Duration, refused bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.locked.since.IsZero() {
		return 0, false
	}
	return time.Since(w.locked.since), w.locked.refused
}

// Behind is for how long the writer has had work and has committed none of it, because it makes no progress or because
// it cannot get its lock, however often it tries. It is 0 if all goes well or there is nothing to write.
func (e *Engine) Behind() time.Duration {
	locked, refused := e.writer.lockedFor()
	if !refused {
		locked = 0
	}
	return max(e.Stalled(), locked)
}

// GiveUp is a fail-stop of a writer that has been behind for too long. It leaves nothing on disk in doubt.
func (e *Engine) GiveUp(behind time.Duration) {
	reason := "a write is blocked in the disk or in the system"
	if locked, _ := e.writer.lockedFor(); locked > 0 {
		reason = e.lockHolder().String() + " has held the database locked"
	}
	_ = e.writer.stop(&FatalError{lockFault{fmt.Errorf("nothing could be committed for %v: %s", behind.Round(time.Second), reason)}})
}

// LockedProblem is what status and the readiness probe say while saves wait for a lock or for the disk, "" if they do
// not wait. It does not mention a short wait.
func (e *Engine) LockedProblem() string {
	if locked, refused := e.writer.lockedFor(); refused || locked > e.opt.WriteTimeout {
		return fmt.Sprintf("saves are answered with busy: %s has held the database locked for %v", e.lockHolder(), locked.Round(time.Second))
	}
	if stalled := e.Stalled(); stalled > e.opt.WriteTimeout {
		return fmt.Sprintf("a write has been blocked for %v: the disk or a lock does not answer", stalled.Round(time.Second))
	}
	return ""
}
