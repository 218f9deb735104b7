package sqlite

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cenkalti/backoff/v4"
)

// The intervals and sizes of maintenance.
const (
	watchEvery  = 500 * time.Millisecond
	walIdle     = 5 * time.Second // a log that has waited this long is copied even if it is small
	walMost     = 4               // a log of more than this many times its target is truncated after it is copied
	VacuumPages = 512
	vacuumAt    = 1024 // the most free pages that are left for the next saves
	vacuumLeast = 64   // the fewest
	vacuumPart  = 16   // otherwise this part of the file
)

// Maintain does the maintenance until the context ends or the store must stop. It watches the files, copies the log and
// gives free pages back. It returns a *FatalError at a fail-stop.
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

// Upkeep does at once what Maintain does when it is due: it copies the log and gives free pages
// back.
func (e *Engine) Upkeep(ctx context.Context) error {
	e.copyWAL(ctx)
	_, err := e.Vacuum(VacuumPages, false)
	return err
}

// dues knows when each part of maintenance was last done.
type dues struct {
	engine   *Engine
	noVacuum rarely // limits the log message that free pages could not be returned to the file system
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
		// The leader decides what the error means, because no other caller can commit meanwhile.
		if s.Write(&Op{Owner: Maintenance, outside: s.writer.checkNow}) != nil {
			return
		}
	}
	if locked, _ := s.writer.lockedFor(); locked > 0 { // nothing else here would get the lock either
		_ = s.Write(&Op{Owner: Maintenance, outside: s.writer.probe})
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
		if _, err := s.Vacuum(VacuumPages, false); err != nil && d.noVacuum.may(now) {
			s.log.Warn("free pages could not be returned to the file system", "error", err)
		}
	}
	s.keepReserve(ctx, now)
	if s.opt.Hooks.Tick != nil {
		s.opt.Hooks.Tick(ctx, now)
	}
}

// copyWAL copies the log into the file on a connection of its own, beside the writer. It records
// the result for status, because SQLite itself is silent about failures here.
func (e *Engine) copyWAL(ctx context.Context) {
	before := e.wal.written.Load()
	var busy, log, done int64
	ended := e.watch.writing(false)
	err := e.side.QueryRowContext(ctx, `PRAGMA wal_checkpoint(PASSIVE)`).Scan(&busy, &log, &done)
	whole := err == nil && busy == 0 && log == done // while another copy runs, it is busy, and both are -1
	ended(whole, false)
	if Classify(err) == ClassFull {
		_ = e.Write(&Op{Owner: Maintenance, outside: func() error {
			e.letGo()
			err := e.writer.copyLog()
			e.writer.takeBack()
			return err
		}})
		return
	}
	if err != nil {
		e.copyFailed(err)
		return
	}
	if busy != 0 { // busy says nothing about the disk
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
	e.wal.tellLong(e.log, log*e.page, done*e.page)
	if log != done && log*e.page > walMost*e.wal.aim() {
		_ = e.Write(&Op{Owner: Maintenance, outside: e.writer.suspectOwnReads})
	}
}

// EmptyLog copies the log and truncates it to nothing, which only erase needs. It waits for readers
// as long as a write may wait.
func (e *Engine) EmptyLog(ctx context.Context) error {
	return backoff.Retry(func() error { return e.truncateWAL(ctx) }, backoff.WithContext(patience(e.opt.WriteTimeout), ctx))
}

func (e *Engine) truncateWAL(ctx context.Context) error {
	var busy, log, done int64
	err := e.Write(&Op{Owner: Maintenance, outside: func() error {
		ended := e.watch.writing(true)
		err := e.writer.conn.QueryRowxContext(ctx, `PRAGMA wal_checkpoint(TRUNCATE)`).Scan(&busy, &log, &done)
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

// cutWAL truncates a log that grew while a reader held its snapshot or while it could not be
// copied.
func (e *Engine) cutWAL(ctx context.Context) {
	if err := e.truncateWAL(ctx); !errors.Is(err, errSnapshot) && !errors.Is(err, errAgain) {
		e.begunAnew(err)
	}
}

// Vacuum gives at most this many free pages back to the file system, on the writer. It leaves a
// few, so that saves find space without growing the file, unless all are to go.
func (e *Engine) Vacuum(pages int64, all bool) (freed int64, err error) {
	var before, after, count int64
	if err := e.ro.Get(&before, `PRAGMA freelist_count`); err != nil {
		return 0, err
	}
	if err := e.ro.Get(&count, `PRAGMA page_count`); err != nil {
		return 0, err
	}
	leave := min(vacuumAt, max(vacuumLeast, (count-before)/vacuumPart))
	needed := all || e.reserve.out.Load() || e.writer.refusesSaves()
	if needed { // if space is needed, none is left
		leave = 0
	}
	if before <= leave {
		return 0, nil
	}
	room := GoesOn
	if needed { // giving pages back first needs space in the log
		room = Frees
	}
	defer e.watch.vacuuming()()
	err = e.Write(&Op{Owner: Maintenance, Claim: room, Do: func(tx *Tx) error {
		if err := tx.Exec(fmt.Sprintf(`PRAGMA incremental_vacuum(%d)`, min(pages, before-leave))); err != nil {
			return err
		}
		if _, err := tx.Get(&after, `PRAGMA freelist_count`); err != nil {
			return err
		}
		_, err := tx.Get(&count, `PRAGMA page_count`)
		e.watch.willShrink(count * e.page)
		return err
	}})
	return max(before-after, 0), err
}

// keepReserve calls regain from outside the writer. While the reserve is out, it returns the pages that deletes have
// freed to the file system.
func (e *Engine) keepReserve(ctx context.Context, now time.Time) {
	r := &e.reserve
	if e.readOnly == "" && r.disturbed() {
		if err := e.Write(&Op{Owner: Maintenance, Claim: GoesOn, outside: e.mendReserve}); err != nil {
			e.log.Debug("the space reserved for deletes could not be restored", "error", err)
		}
	}
	size, out := r.size.Load(), r.out.Load()
	whole := size >= r.base && !out
	switch {
	case r.base == 0, e.readOnly != "", now.Sub(r.tried) < reserveEvery:
		return
	case whole && size <= 5*r.base:
		return
	}
	r.tried = now
	if out {
		if _, err := e.Vacuum(VacuumPages, false); err != nil {
			e.log.Debug("free pages could not be returned to the file system", "error", err)
		}
		e.copyWAL(ctx)
	}
	if err := e.Write(&Op{Owner: Maintenance, Claim: GoesOn, outside: e.regain}); err != nil {
		e.log.Debug("there is not enough free space yet to reserve some for deletes", "error", err)
	}
}

// reserveEvery is how often maintenance tries to make the reserve again.
const reserveEvery = 2 * time.Second
