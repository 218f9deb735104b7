package sqlite

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/ckptsidecar/ckptsidecar/internal/osfile"
	"github.com/jmoiron/sqlx"
	sqlite3 "modernc.org/sqlite/lib"
)

// Open opens the database file, creates it if there is none, brings its schema up to date, and
// checks it if the last process stopped because of a fault. The engine takes writes only after
// Start. Until then, the caller can look at the database and repair it through Writing.
//
// Its errors are ErrLocked if another process has the database, and *OperatorError if a person must
// fix something first.
func Open(ctx context.Context, opt Options) (_ *Engine, err error) {
	opt.setDefaults()
	s := &Engine{opt: opt, page: PageSize, log: opt.Log}
	defer func() {
		if err != nil {
			_ = s.close()
		}
	}()
	steps := []func(context.Context) error{
		s.takeLock, s.prepareFile, s.openReserve, s.openWriter, s.migrate, s.openReaders, s.recover, s.limitSize,
	}
	for _, step := range steps {
		if err := step(ctx); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// Start makes the writer, which keeps the one writing connection, and begins to watch the files.
func (e *Engine) Start(ctx context.Context) (err error) {
	if e.writer, err = newWriter(ctx, e); err != nil {
		return e.OpenError(err)
	}
	if e.watch, err = watchFile(e.opt.Path, e.lock); err != nil {
		return &OperatorError{"the database changed while it was opened", err}
	}
	var pages int64
	if err := e.ro.GetContext(ctx, &pages, `PRAGMA page_count`); err != nil {
		return e.OpenError(err)
	}
	e.watch.willShrink(pages * e.page) // a vacuum of the last daemon may still wait in the log
	if e.readOnly == "" {
		if err := e.firstReserve(); err != nil {
			e.log.Warn("no space can be reserved for deletes: on a full disk they may be refused", "file",
				e.reserve.path, "bytes", e.reserve.base, "error", err)
		}
	}
	return nil
}

// prepareFile creates the empty file with the right mode, whatever the umask, and refuses a file
// that is not a plain file of ours. It closes a file only before SQLite has opened any.
func (e *Engine) prepareFile(context.Context) error {
	if !e.opt.Restoring {
		if err := e.refuseHalfRestored(); err != nil {
			return err
		}
	}
	info, err := os.Lstat(e.opt.Path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if err := e.refuseLeftovers("gone"); err != nil {
			return err
		}
		return e.makeFile()
	case err != nil:
		return &OperatorError{"the database file cannot be examined", err}
	case !info.Mode().IsRegular():
		return &OperatorError{fmt.Sprintf("%s is not a plain file (%s): name another with --db", e.opt.Path, info.Mode().Type()), nil}
	case osfile.Names(e.opt.Path, info) > 1:
		return &OperatorError{fmt.Sprintf("%s has a second name (a hard link): remove one, so that two daemons cannot open it", e.opt.Path), nil}
	case info.Size() == 0:
		return e.refuseLeftovers("empty")
	}
	return nil
}

// refuseLeftovers protects the write-ahead log of a database that was removed or emptied: SQLite
// would delete the log, and with it saves that are nowhere else. It also refuses to silently create
// a new database after a fault.
func (e *Engine) refuseLeftovers(database string) error {
	path := e.opt.Path
	if info, err := os.Lstat(path + "-wal"); err == nil && info.Size() > 0 {
		return &OperatorError{fmt.Sprintf("%s is %s, but its write-ahead log %s-wal is there: put the database back, "+
			"or move the log away to start with an empty database", path, database, path), nil}
	}
	if _, err := os.Lstat(e.marker()); err == nil {
		return &OperatorError{fmt.Sprintf("%s is %s since the last daemon stopped because of a fault: restore a "+
			"backup, or remove %s to start with an empty database", path, database, e.marker()), nil}
	}
	return nil
}

func (e *Engine) makeFile() error {
	if _, err := os.Lstat(e.marker()); err == nil {
		return &OperatorError{fmt.Sprintf("%s is missing, and the last daemon stopped because of a fault: put it or a "+
			"backup back; to start with an empty database instead, remove %s", e.opt.Path, e.marker()), nil}
	}
	f, err := os.OpenFile(e.opt.Path, os.O_RDWR|os.O_CREATE|os.O_EXCL, e.opt.Mode)
	if err != nil {
		return &OperatorError{"the database cannot be made", err}
	}
	defer f.Close()
	if err := f.Chmod(e.opt.Mode); err != nil {
		return &OperatorError{"the auditors cannot be given the right to read the database", err}
	}
	return nil
}

// openWriter opens the database. If there is no space even for the log's index, it uses the reserve's space.
func (e *Engine) openWriter(ctx context.Context) error {
	err := e.openToWrite(ctx)
	if noRoom(err) && e.letGo() {
		_ = e.rw.Close()
		return e.openToWrite(ctx)
	}
	return err
}

func (e *Engine) openToWrite(ctx context.Context) error {
	var err error
	if e.rw, err = pool(e.opt.Path, "rw", 1, writerPragmas); err != nil {
		return err
	}
	if err := e.refuseForeign(ctx); err != nil {
		return err
	}
	if err := e.format(ctx); err != nil {
		return err
	}
	e.lookAtLocks()
	return e.readBack(ctx)
}

// refuseForeign checks, before anything is written, that the database is ours.
func (e *Engine) refuseForeign(ctx context.Context) error {
	id, err := e.opt.Schema.identify(ctx, e.rw)
	if err != nil {
		return e.OpenError(err)
	}
	if id.empty() {
		return nil
	}
	return e.opt.Schema.refuse(e.opt.Path, id)
}

// DoubtLog checks a database whose write-ahead log may belong to another database. SQLite applies
// the pages of a log to any database, so pages of another moment make a mixture. A mixture is
// served for reading only.
func (e *Engine) DoubtLog(ctx context.Context) error {
	var result string
	err := e.ro.GetContext(ctx, &result, `PRAGMA quick_check(1)`)
	if code := Code(err); err != nil && code&0xff != 11 && code != 26 {
		return err
	}
	if err != nil {
		result = err.Error()
	}
	if result != "ok" {
		e.readOnly = "the database breaks its own invariants: " + result + "; " + copiedHint
		e.log.Error("serving reads only", "reason", e.readOnly)
	}
	return nil
}

// format gives a new file its page size, vacuum mode and journal, in the only order that SQLite
// accepts.
func (e *Engine) format(ctx context.Context) error {
	return e.Patiently(ctx, func() error {
		var pages int64
		if err := e.rw.GetContext(ctx, &pages, `PRAGMA page_count`); err != nil {
			return err
		}
		statements := []string{`PRAGMA journal_mode = WAL`}
		if pages == 0 {
			statements = []string{fmt.Sprintf(`PRAGMA page_size = %d`, PageSize), `PRAGMA auto_vacuum = INCREMENTAL`, `PRAGMA journal_mode = WAL`}
		}
		for _, statement := range statements {
			if _, err := e.rw.ExecContext(ctx, statement); err != nil {
				return err
			}
		}
		return nil
	})
}

// readBack reads each pragma back, because setting a pragma can fail silently.
func (e *Engine) readBack(ctx context.Context) error {
	want := map[string]string{
		"journal_mode": "wal", "synchronous": "2", "foreign_keys": "1", "auto_vacuum": "2",
		"wal_autocheckpoint": "0", "secure_delete": "2", "trusted_schema": "0",
	}
	for pragma, value := range want {
		var got string
		if err := e.rw.GetContext(ctx, &got, `PRAGMA `+pragma); err != nil {
			return e.OpenError(err)
		}
		if got != value {
			return &OperatorError{fmt.Sprintf("SQLite keeps PRAGMA %s at %s where %s is needed (is the file on a "+
				"network file system?)", pragma, got, value), nil}
		}
	}
	if err := e.rw.GetContext(ctx, &e.page, `PRAGMA page_size`); err != nil {
		return e.OpenError(err)
	}
	e.wal.page, e.reserve.page = e.page, e.page
	return nil
}

// PageSize is the page size of the file, in bytes.
func (e *Engine) PageSize() int64 { return e.page }

func (e *Engine) openReaders(context.Context) error {
	var err error
	if e.ro, err = readers(e.opt.Path, e.opt.Readers, e.metRead); err != nil {
		return err
	}
	e.side, err = pool(e.opt.Path, "rw", 1, writerPragmas)
	return err
}

// limitSize sets the quota inside SQLite, so that deletes still work.
func (e *Engine) limitSize(ctx context.Context) error {
	pages := int64(1<<32 - 2)
	if e.opt.MaxBytes > 0 {
		pages = max(e.opt.MaxBytes/e.page, 64*PageSize/e.page)
	}
	if _, err := e.rw.ExecContext(ctx, fmt.Sprintf(`PRAGMA max_page_count = %d`, pages)); err != nil {
		return e.OpenError(err)
	}
	return nil
}

// Version is the version of the SQLite that is built in.
func Version() string { return sqlite3.SQLITE_VERSION }

// Drain ends the writer after it has run the operations in its queue.
func (e *Engine) Drain() {
	if e.writer != nil && !e.drained.Swap(true) {
		e.writer.close()
	}
}

// Close closes the database. It leaves the database with everything that was saved, an empty
// write-ahead log and its index, so that a read-only auditor can still read, and the reserve.
func (e *Engine) Close() error {
	e.Drain()
	if e.writer != nil && !e.tidied.Swap(true) {
		if err := e.tidy(); err != nil {
			e.log.Warn("the write-ahead log could not be emptied at the stop: the next start reads it", "error", err)
		}
	}
	return e.close()
}

// tidyFor is how long Close waits for an auditor that reads while the daemon ends.
const tidyFor = 500 * time.Millisecond

// tidy copies the log into the database, truncates the log, and makes the reserve as small as its
// setting. After a fault it changes nothing.
func (e *Engine) tidy() error {
	if e.writer.failed() != nil || e.readOnly != "" || e.watch == nil || e.watch.check() != nil {
		return nil
	}
	_ = e.ro.Close()
	_ = e.side.Close()
	err := backoff.Retry(func() error {
		var busy, log, done int64
		err := e.rw.QueryRowx(`PRAGMA wal_checkpoint(TRUNCATE)`).Scan(&busy, &log, &done)
		switch {
		case err == nil && busy != 0:
			return errSnapshot
		case noRoom(err) && e.reserve.file != nil && e.reserve.size.Load() > 0:
			e.lend()
			return err
		case err != nil:
			return backoff.Permanent(err)
		}
		return nil
	}, patience(tidyFor))
	r := &e.reserve
	switch size := r.size.Load(); {
	case r.file == nil || err != nil:
	case size > r.base:
		err = r.file.Truncate(r.base)
	case size < r.base:
		_ = r.hold(r.base, r.base) // if there is no space for it, the next start says so
	}
	return err
}

func (e *Engine) close() error {
	var errs []error
	for _, pool := range []*sqlx.DB{e.ro, e.side, e.rw} {
		if pool != nil {
			errs = append(errs, pool.Close())
		}
	}
	if e.reserve.file != nil {
		errs = append(errs, e.reserve.file.Close())
	}
	if e.lock != nil {
		errs = append(errs, osfile.Unlock(e.lock))
	}
	return errors.Join(errs...)
}

// Abandon closes a database after an opening that did not finish. The files stay as they are.
func (e *Engine) Abandon() error { return e.close() }
