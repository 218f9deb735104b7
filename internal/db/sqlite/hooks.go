package sqlite

import (
	"context"
	"time"

	"github.com/jmoiron/sqlx"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

// Hooks are what the store does inside the engine's transactions and between
// them. All but Tick are called in the writer's turn, so never at the same time.
type Hooks interface {
	// Begin is called before a transaction begins. It may set Tx.Domain.
	Begin(t *Tx)
	// OthersWrote is called at the beginning of a transaction where another
	// connection has committed since the last one, and at the very first
	// transaction. An error ends the transaction.
	OthersWrote(t *Tx, first bool) error
	// Prepared is called once for each statement, with the tables that it writes.
	// Its answer is kept with the statement, for Runs.
	Prepared(query string, tables []string) any
	// Runs is called before a statement runs, also outside a transaction.
	Runs(t *Tx, kept any, args []any)
	// BeforeCommit is called once all operations of a transaction are done. It
	// may still write. An error rolls the transaction back.
	BeforeCommit(t *Tx) error
	// Committed is called once the transaction is on disk.
	Committed(t *Tx)
	// RolledBack is called where a transaction did not commit. It may be called
	// for a transaction that never began.
	RolledBack(t *Tx)
	// Refused is called where an operation was refused and has changed nothing.
	// It may record the refusal.
	Refused(t *Tx, o *Op, refusal *ckpt.Error) error
	// Apart parts a batch into operations that share a transaction and
	// operations that each have their own.
	Apart(batch []*Op) (together, alone []*Op)
	// Examine looks whether a database file that somebody else has written is
	// still the one that the store knows. sound runs SQLite's own check.
	Examine(db *sqlx.DB, sound func() error) error
	// Tick is called about twice a second by Maintain, outside the writer's turn.
	Tick(ctx context.Context, now time.Time)
}

// Schema is what the engine makes of a new file and brings an older one up to.
type Schema struct {
	ApplicationID int64
	Version       int64  // PRAGMA user_version of a file that is up to date
	Table         string // a table that every version has
	// Migrate makes Version out of version, which is 0 for an empty file. It
	// runs inside one transaction.
	Migrate func(ctx context.Context, conn *sqlx.Conn, version int64) error
	// Writes is how many times the size of the file a migration from version takes on the disk, in the log and
	// in the file, beside the copy that is made before. Nil is never.
	Writes func(version int64) int64
}

// Claim is what an operation may do where the disk is full.
type Claim int

// The claims.
const (
	Adds   Claim = iota // it stores something: it waits until the reserve is whole
	GoesOn              // it stores next to nothing, and is not held up
	Frees               // it makes room: the reserve is there for it
)

// Operation is what an Op does inside a transaction. Apply may be called more
// than once, because a transaction may be tried again: it must set its results
// anew each time. It must refuse, where it does, before it changes anything.
type Operation interface {
	Apply(t *Tx) error
}

// Func is an Operation that is a function.
type Func func(*Tx) error

// Apply calls the function.
func (f Func) Apply(t *Tx) error { return f(t) }

// Maintenance is the Owner of what nobody asked for.
const Maintenance = "daemon"

// Op is one operation on its way through the writer.
type Op struct {
	Owner string // whose share of the queue it takes
	Size  int64  // bytes that it carries
	Claim Claim
	Do    Operation

	outside func() error // instead of Do: what runs in the writer's turn but outside a transaction
	at      time.Time    // when it came
	err     error
	done    bool
	stored  bool          // it has stored something, as a reply from before has not
	wake    chan struct{} // told when done, or when to lead
}

// Tx is the writer's transaction. All operations of a batch share it.
type Tx struct {
	Ctx     context.Context
	Conn    *sqlx.Conn
	Retries int  // how often the transaction was begun anew
	Wrote   bool // whether the present operation has changed anything, so that a refusal needs a rollback
	Barred  bool // whether the present operation may write nothing, because the disk is full
	Domain  any  // what Hooks.Begin keeps with the transaction

	hooks Hooks
	stmts *statements
	adds  int64    // at most so many bytes were stored by operations of claim Adds
	after []func() // to be called once the transaction is on disk
	gotOn func()
}
