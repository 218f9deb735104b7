package sqlite

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/cenkalti/backoff/v4"
	"modernc.org/sqlite"
)

// The rhythm of maintenance. The write-ahead log is copied into the file once
// about so much has been written; then the writer makes one short copy itself
// between two batches, so that the log begins anew and is overwritten in
// place, which costs half of growing it.
const (
	walTarget   = 32 << 20
	watchEvery  = 500 * time.Millisecond
	walIdle     = 5 * time.Second // what waits in the log this long is copied even where it is little
	LogAlarm    = 8 * walTarget   // somebody holds a snapshot: say so
	copyTries   = 10              // failures in a row, before a log of that length is a fault
	walMost     = 4               // a log of more than so many times its target is cut, once it is copied
	VacuumPages = 256
	vacuumAt    = 512 // so many free pages at most are left for the next saves
	vacuumLeast = 32  // and so many at least
	vacuumPart  = 16  // and else this part of the file
)

// wal is how the copying of the write-ahead log goes.
type wal struct {
	target   int64        // tests: copy after so many bytes, not walTarget
	written  atomic.Int64 // pages written by the writer in all
	copied   atomic.Int64 // written, when the log was last copied whole
	wrapDue  atomic.Bool  // the background copy is done: the writer may make the log begin anew
	failures atomic.Int64 // in a row
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
		log.Warn("the write-ahead log is long because a reader has held its snapshot for a while", "bytes", bytes, "copied", copied)
	}
}

func (w *wal) pending() int64 { return (w.written.Load() - w.copied.Load()) * PageSize }

// full says that enough waits in the log to be copied.
func (w *wal) full() bool { return w.pending() >= w.aim() }

func (w *wal) aim() int64 { return cmp.Or(w.target, walTarget) }

// Maintain does the maintenance until the context ends or the store must stop: it
// watches the files, copies the log and gives free pages back. It answers a *FatalError at a fail-stop.
func (e *Engine) Maintain(ctx context.Context) error {
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	due := newDue(e)
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-e.Failed():
			return e.writer.failed()
		case now := <-tick.C:
			due.tick(ctx, now)
		}
	}
}

// Upkeep does at once what Maintain does when it is due: it copies the log and
// gives free pages back.
func (e *Engine) Upkeep(ctx context.Context) error {
	e.copyWAL(ctx)
	_, err := e.Vacuum(VacuumPages)
	return err
}

// dues knows when which part of maintenance was last done.
type dues struct {
	engine   *Engine
	noVacuum rarely // the log says that free pages could not be given back
	wal      time.Time
	written  int64
}

func newDue(s *Engine) *dues {
	now := time.Now()
	return &dues{engine: s, wal: now}
}

func (d *dues) tick(ctx context.Context, now time.Time) {
	s := d.engine
	if err := s.watch.check(); err != nil {
		if s.readOnly != "" {
			_ = s.writer.explain(&FatalError{err})
			return
		}
		// The writer says what it means, in its turn: nobody commits meanwhile.
		if s.Write(&Op{Owner: Maintenance, outside: func(w *writer) error { return w.checkNow() }}) != nil {
			return
		}
	}
	if locked, _ := s.writer.lockedFor(); locked > 0 { // nothing else here gets the lock either
		_ = s.Write(&Op{Owner: Maintenance, outside: (*writer).probe})
		return
	}
	idle := d.written == s.wal.written.Load()
	d.written = s.wal.written.Load()
	if s.wal.full() || (idle && s.wal.pending() > 0 && now.Sub(d.wal) >= walIdle) {
		d.wal = now
		s.copyWAL(ctx)
	}
	if _, size := s.Sizes(); size > walMost*s.wal.aim() && !s.wal.full() {
		s.cutWAL(ctx)
	}
	if idle || now.Second()%5 == 0 {
		if _, err := s.Vacuum(VacuumPages); err != nil && d.noVacuum.may(now) {
			s.log.Warn("free pages could not be given back", "error", err)
		}
	}
	s.keepReserve(ctx, now)
	s.opt.Hooks.Tick(ctx, now)
}

// copyWAL copies the log into the file on a connection of its own, beside the
// writer. Its result is health: SQLite itself is silent about failures here.
func (e *Engine) copyWAL(ctx context.Context) {
	before := e.wal.written.Load()
	var busy, log, done int64
	ended := e.watch.writing(false)
	err := e.side.QueryRowContext(ctx, `PRAGMA wal_checkpoint(PASSIVE)`).Scan(&busy, &log, &done)
	whole := err == nil && busy == 0 && log == done // where another copy is under way it is busy, and both are -1
	ended(whole, false)
	if Classify(err) == ClassFull {
		_ = e.Write(&Op{Owner: Maintenance, outside: func(w *writer) error {
			e.letGo()
			err := w.copyLog()
			w.takeBack()
			return err
		}})
		return
	}
	if err != nil {
		e.copyFailed(err)
		return
	}
	if busy != 0 { // it says nothing about the disk
		return
	}
	if !e.wal.stuck.Load() {
		e.wal.failures.Store(0)
	}
	e.wal.last.Store(time.Now().UnixMilli())
	if whole {
		e.wal.copied.Store(max(before, e.wal.copied.Load()))
	}
	e.wal.wrapDue.Store(true)
	e.wal.tellLong(e.log, log*PageSize, done*PageSize)
	if log != done && log*PageSize > walMost*e.wal.aim() {
		_ = e.Write(&Op{Owner: Maintenance, outside: (*writer).suspectOwnReads})
	}
}

// copyFailed counts failures. Saves go on, but not for ever: a log that grows and
// cannot be copied is for a fresh process to look at, while it is of bounded size.
func (e *Engine) copyFailed(err error) {
	e.wal.lastErr.Store(err.Error())
	n := e.wal.failures.Add(1)
	if n == 1 || n%60 == 0 {
		e.log.Error("the write-ahead log could not be copied into the database", "times", n, "error", err)
	}
	_, size := e.Sizes()
	if size = max(size, e.wal.pending()); n >= copyTries && size > LogAlarm && Classify(err) != ClassFull {
		_ = e.writer.stop(&FatalError{fmt.Errorf("the write-ahead log has %d MiB, and could not be copied into the database %d times in a row: %w", size>>20, n, err)})
	}
}

// maintainBetween is what the writer itself does between two batches: count
// what was written and, where a copy has just been made, make the short second
// one after which the log begins anew.
func (e *Engine) maintainBetween(w *writer) {
	e.wal.written.Store(w.pagesWritten())
	if !e.wal.wrapDue.CompareAndSwap(true, false) {
		return
	}
	_ = w.copyLog() // it counts its failures
}

// begunAnew notes whether the log could be flushed into the database and begin
// anew, as a copy beside the writer cannot show.
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

// EmptyLog copies the log and cuts it to nothing, as only erase needs. It waits
// for readers as long as a write may wait.
func (e *Engine) EmptyLog(ctx context.Context) error {
	return backoff.Retry(func() error { return e.truncateWAL(ctx) }, backoff.WithContext(patience(e.opt.WriteTimeout), ctx))
}

// errAgain says that there is room now where there was none.
var errAgain = errors.New("the disk was full")

// errSnapshot says that the log could not be cut just now.
var errSnapshot = errors.New("a reader holds a snapshot")

func (e *Engine) truncateWAL(ctx context.Context) error {
	var busy, log, done int64
	err := e.Write(&Op{Owner: Maintenance, outside: func(w *writer) error {
		ended := e.watch.writing(true)
		err := w.conn.QueryRowxContext(ctx, `PRAGMA wal_checkpoint(TRUNCATE)`).Scan(&busy, &log, &done)
		ended(err == nil && busy == 0, err == nil && busy == 0)
		if noRoom(err) && e.letGo() {
			return errAgain
		}
		return err
	}})
	if err == nil && busy != 0 {
		return errSnapshot
	}
	return err
}

// cutWAL gives back what a log has that grew while a reader held its snapshot,
// or while it could not be copied.
func (e *Engine) cutWAL(ctx context.Context) {
	if err := e.truncateWAL(ctx); !errors.Is(err, errSnapshot) && !errors.Is(err, errAgain) {
		e.begunAnew(err)
	}
}

// Vacuum gives at most so many free pages back to the file system, in the
// writer's turn. A few are left, so that saves find room without growing the file.
func (e *Engine) Vacuum(pages int64) (freed int64, err error) {
	var before, after, count int64
	if err := e.ro.Get(&before, `PRAGMA freelist_count`); err != nil {
		return 0, err
	}
	if err := e.ro.Get(&count, `PRAGMA page_count`); err != nil {
		return 0, err
	}
	leave := min(vacuumAt, max(vacuumLeast, (count-before)/vacuumPart))
	erasing := pages > VacuumPages
	if erasing || e.reserve.out.Load() { // who needs room leaves none either
		leave = 0
	}
	if before <= leave {
		return 0, nil
	}
	room := GoesOn
	if erasing || e.reserve.out.Load() { // to give pages back takes room in the log first
		room = Frees
	}
	defer e.watch.vacuuming()()
	err = e.Write(&Op{Owner: Maintenance, Claim: room, Do: Func(func(tx *Tx) error {
		if err := tx.Exec(fmt.Sprintf(`PRAGMA incremental_vacuum(%d)`, min(pages, before-leave))); err != nil {
			return err
		}
		if _, err := tx.Get(&after, `PRAGMA freelist_count`); err != nil {
			return err
		}
		_, err := tx.Get(&count, `PRAGMA page_count`)
		e.watch.willShrink(count * PageSize)
		return err
	})})
	return max(before-after, 0), err
}
