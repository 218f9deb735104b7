package sqlite

import (
	"context"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jmoiron/sqlx"
)

// lockedOut says since when the writer could not get its lock, and whether a caller was told busy because of that.
type lockedOut struct {
	since   time.Time
	refused bool
}

// Engine is one open database file: its pools, its one writer, and the upkeep of its files. It does
// not know what the tables mean.
type Engine struct {
	opt      Options
	page     int64 // the file's page size in bytes
	log      *slog.Logger
	lock     *os.File
	watch    *fileWatch
	writer   *writer
	rw       *sqlx.DB      // one connection: the writer's
	ro       *sqlx.DB      // the readers'
	side     *sqlx.DB      // one connection: WAL checkpoints in the background
	readOnly string        // why only reads are served; "" if writes are served too
	stopped  chan struct{} // closed at a fail-stop
	wal      wal
	reserve  reserve
	drained  atomic.Bool // no more writes are taken
	tidied   atomic.Bool // tidy has run
}

// writer is the only way to change the database. A caller that finds it free becomes the leader: it
// commits, on its own goroutine, for all waiting callers. So a lone caller pays no hand-off, and
// many callers share one flush.
type writer struct {
	engine  *Engine
	conn    *sqlx.Conn
	stmts   *statements
	version int64 // SQLite's data_version, which grows when another connection has committed
	zeroes  bool  // deletes zero all that they free

	lockSaid rarely // limits the log message that a lock refused a write

	mu      sync.Mutex
	queue   turns
	leading bool
	closed  bool
	fatal   error
	idle    sync.Cond // signals that leading has become false
	locked  lockedOut

	stats writerStats
	moved atomic.Int64 // when the writer last made progress, as time since made
	made  time.Time
}

// gotOn notes that the writer has begun or has made progress.
func (w *writer) gotOn() { w.moved.Store(int64(time.Since(w.made))) }

func (w *writer) do(statement string) error {
	return w.reading().Exec(statement)
}

// rollback ends a transaction that cannot commit because of err. It also runs if SQLite has already rolled back by itself;
// that is no error. When there was no room, SQLite counts its own rollback as a change by another connection, so the
// count is read again. The transaction began by comparing the count.
func (w *writer) rollback(err error) {
	_ = w.do(`ROLLBACK`)
	if Classify(err) != ClassFull || w.do(`BEGIN IMMEDIATE`) != nil {
		return
	}
	var version int64
	if _, err := w.reading().Get(&version, `PRAGMA data_version`); err == nil {
		w.version = version
	}
	_ = w.do(`ROLLBACK`)
}

// zero sets whether deletes zero all that they free, or only what is on pages that are written anyway.
func (w *writer) zero(on bool) error {
	if w.zeroes == on {
		return nil
	}
	pragma := `PRAGMA secure_delete = FAST`
	if on {
		pragma = `PRAGMA secure_delete = 1`
	}
	var now int
	_, err := w.reading().Get(&now, pragma)
	if err == nil {
		w.zeroes = on
	}
	return err
}

// failed returns the fault that stopped the writer, nil if it still writes.
func (w *writer) failed() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.fatal
}

// reading returns a Tx for statements outside a transaction.
func (w *writer) reading() *Tx {
	return &Tx{Ctx: context.Background(), Conn: w.conn, stmts: w.stmts}
}

// Readers returns the pool of connections that read.
func (e *Engine) Readers() *sqlx.DB { return e.ro }

// Writing returns the one connection that writes. Use it only between Open and Start: after that,
// the writer keeps it.
func (e *Engine) Writing() *sqlx.DB { return e.rw }

// Sizes returns how many bytes the database and its write-ahead log have.
func (e *Engine) Sizes() (database, log int64) { return sizesOf(e.opt.Path) }

// marker is the file beside the database that tells the next process that this one ended in a
// fault.
func (e *Engine) marker() string { return e.opt.Path + ".failed" }

// Failed is closed when the store has stopped acknowledging. The process should then end, and a new
// process decide.
func (e *Engine) Failed() <-chan struct{} { return e.stopped }

// ReadOnly says why only reads are served, "" if writes are served too.
func (e *Engine) ReadOnly() string { return e.readOnly }

// Fault says why the store has stopped acknowledging, nil if it has not.
func (e *Engine) Fault() error { return e.writer.failed() }

// Started says whether Start has made the writer.
func (e *Engine) Started() bool { return e.writer != nil }

// Stalled is for how long the writer has had work without making progress: in a flush, in a
// statement, or in a wait that never ends. It is 0 if there is nothing to write.
func (e *Engine) Stalled() time.Duration {
	w := e.writer
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.leading {
		return 0
	}
	return time.Since(w.made) - time.Duration(w.moved.Load())
}
