package sqlite

import (
	"context"
	"time"

	"github.com/jmoiron/sqlx"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

// Hooks are what the store does inside the engine's transactions and between them. The leader calls all of them except Tick, so they are
// never called at the same time. A field that is nil does nothing.
type Hooks struct {
	// Begin is called first in each transaction. An error ends the transaction.
	Begin func(t *Tx, last LastWriter) error
	// BeforeCommit is called when all operations of a transaction are done. It can still write. An error rolls the transaction back.
	BeforeCommit func(t *Tx) error
	// Ended is called after a transaction that Begin was called for, and says whether it is on disk.
	Ended func(t *Tx, committed bool)
	// Examine checks whether a database file that another program has written is still the one that the store knows. sound runs SQLite's
	// own check.
	Examine func(db *sqlx.DB, sound func() error) error
	// Tick is called about twice a second by Maintain, not by the leader.
	Tick func(ctx context.Context, now time.Time)
}

// LastWriter says who has committed last before a transaction.
type LastWriter int

// The values of LastWriter.
const (
	This    LastWriter = iota // this connection
	Nobody                    // it is the first transaction of this connection
	Another                   // another connection
)

// Schema is what the engine creates in a new file and migrates an older file to.
type Schema struct {
	ApplicationID int64
	Version       int64  // PRAGMA user_version of a file that is up to date
	Fingerprint   string // of the tables of that version
	// Migrate changes the schema from version, which is 0 for an empty file, to Version, and stores
	// Fingerprint in table meta under FingerprintKey. It runs inside one transaction.
	Migrate func(ctx context.Context, conn *sqlx.Conn, version int64) error
}

// FingerprintKey is the key in table meta of the fingerprint of the schema.
const FingerprintKey = "schema"

// Claim says what an operation can do if the disk is full.
type Claim int

// The claims.
const (
	Adds   Claim = iota // it stores something: it waits until the reserve is complete
	GoesOn              // it stores almost nothing, and is not held up
	Frees               // it frees space: it can use the reserve
)

// Maintenance is the Owner of operations that no user asked for.
const Maintenance = "daemon"

// Op is one operation that the writer runs.
type Op struct {
	Owner string // the owner in the fair queue
	Size  int64  // bytes that it carries
	Claim Claim
	Zero  bool // what it deletes is zeroed, although that writes more pages; not if there is no room for them
	// Do is the operation inside a transaction. It may be called more than once, because a transaction may be tried again: it must set its
	// results anew each time. If it refuses, it must do so before it changes anything.
	Do func(*Tx) error
	// Refused records in a transaction that Do has refused and has changed nothing; nil records nothing.
	Refused func(*Tx, *ckpt.Error) error
	// Alone says, when the batch is made, that the operation needs a transaction of its own; nil for no.
	Alone func() bool

	outside func() error // instead of Do: the leader runs it outside a transaction
	at      time.Time    // when it arrived
	err     error
	done    bool
	stored  bool          // it has stored something; false for a replayed reply
	wake    chan struct{} // gets a signal when the operation is done or its caller is to lead
}

// Tx is the writer's transaction. All operations of a batch share it.
type Tx struct {
	Ctx     context.Context
	Conn    *sqlx.Conn
	Retries int   // how often the transaction was begun again
	Wrote   bool  // whether the current operation has changed anything, so that a refusal needs a rollback
	Barred  bool  // whether the current operation must not write, because the disk is full
	Stored  int64 // bytes that the current operation has stored, as Insert, Update and Fill count them

	stmts *statements
	adds  int64    // upper bound of the bytes that operations of claim Adds stored
	after []func() // called when the transaction is on disk
	gotOn func()
}
