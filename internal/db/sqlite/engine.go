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

// lockedOut is since when the writer has been kept from its lock, and whether somebody was told busy for that.
type lockedOut struct {
	since   time.Time
	refused bool
}

// Engine is one open database file: its pools, its one writer, and the upkeep of
// its files. It knows nothing of what the tables mean.
type Engine struct {
	opt      Options
	page     int64 // bytes of a page of the file
	log      *slog.Logger
	lock     *os.File
	watch    *fileWatch
	writer   *writer
	rw       *sqlx.DB      // one connection: the writer's
	ro       *sqlx.DB      // the readers'
	side     *sqlx.DB      // one connection: WAL checkpoints in the background
	readOnly string        // why only reads are served; "" where writes are too
	stopped  chan struct{} // closed at a fail-stop
	wal      wal
	reserve  reserve
	drained  atomic.Bool // no more writes are taken
	tidied   atomic.Bool // the files are as they stay
}

// writer is the only way to change the database. Whoever finds it free leads:
// it commits, on its own goroutine, for all who wait. So a lone caller pays no
// hand-off, and many share one flush.
type writer struct {
	engine  *Engine
	conn    *sqlx.Conn
	stmts   *statements
	version int64 // SQLite's data_version, which grows when another connection has committed

	mu      sync.Mutex
	queue   turns
	leading bool
	closed  bool
	fatal   error
	idle    sync.Cond // leading has become false
	locked  lockedOut

	stats writerStats
	moved atomic.Int64 // when the writer last got on, in time since made
	made  time.Time
}

// gotOn notes that the writer has begun, or got one more thing done.
func (w *writer) gotOn() { w.moved.Store(int64(time.Since(w.made))) }

func (w *writer) do(statement string) error {
	return w.reading().Exec(statement)
}

// rollback also runs where SQLite has rolled back by itself; that is no error.
func (w *writer) rollback() {
	_ = w.do(`ROLLBACK`)
}

// failed is the fault that stopped the writer, nil while it writes.
func (w *writer) failed() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.fatal
}

// reading is a transaction's means outside of one.
func (w *writer) reading() *Tx {
	return &Tx{Ctx: context.Background(), Conn: w.conn, hooks: w.engine.opt.Hooks, stmts: w.stmts}
}

// Readers is the pool of connections that read.
func (e *Engine) Readers() *sqlx.DB { return e.ro }

// Writing is the one connection that writes. It is for the time between Open
// and Start: the writer keeps it after that.
func (e *Engine) Writing() *sqlx.DB { return e.rw }

// Sizes answers how many bytes the database and its write-ahead log have.
func (e *Engine) Sizes() (database, log int64) { return sizesOf(e.opt.Path) }

// marker is the file beside the database that tells the next process that this
// one ended in a fault.
func (e *Engine) marker() string { return e.opt.Path + ".failed" }

// Failed is closed when the store has stopped acknowledging; the process
// should end, and a fresh one decide.
func (e *Engine) Failed() <-chan struct{} { return e.stopped }

// ReadOnly is why only reads are served, "" where writes are too.
func (e *Engine) ReadOnly() string { return e.readOnly }

// Fault is why the store has stopped acknowledging, nil while it has not.
func (e *Engine) Fault() error { return e.writer.failed() }

// Started says whether the engine takes writes, or has taken some.
func (e *Engine) Started() bool { return e.writer != nil }

// Stalled is for how long the writer has had work and not got on with it: in a
// flush, a statement, or waiting for what never comes. It is 0 while nobody
// wants to write.
func (e *Engine) Stalled() time.Duration {
	w := e.writer
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.leading {
		return 0
	}
	return time.Since(w.made) - time.Duration(w.moved.Load())
}
