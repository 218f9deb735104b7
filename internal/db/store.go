package db

import (
	"context"
	"sync/atomic"

	"github.com/ckptsidecar/ckptsidecar/internal/db/sqlite"
)

// What the engine answers where a start or a write must not go on.
type (
	// OperatorError is what stops a start until somebody has mended it.
	OperatorError = sqlite.OperatorError
	// FatalError is a fail-stop: the store has stopped acknowledging because what
	// is on disk is not known any more. A fresh process decides.
	FatalError = sqlite.FatalError
)

// ErrLocked is the error of Open where another daemon has the database.
var ErrLocked = sqlite.ErrLocked

// SQLiteVersion is the version of the SQLite that is built in.
func SQLiteVersion() string { return sqlite.Version() }

// Store is one open database.
type Store struct {
	*core
	*drifts
	*saves
	*threads
	*archive
	events   changes
	keysSeen atomic.Pointer[keyPlace] // where Expire goes on
}

// Open opens the database, makes it where there is none, brings its schema up
// to date, and checks it where the last daemon stopped because of a fault.
//
// Its errors are ErrLocked where another daemon has the database, and
// *OperatorError where somebody must mend something first.
func Open(ctx context.Context, opt Options) (*Store, error) {
	c, err := newCore(opt)
	if err != nil {
		return nil, err
	}
	d := newDrifts(c)
	v := &saves{d}
	s := &Store{core: c, drifts: d, saves: v, threads: &threads{v}, archive: &archive{d, graphImported}}
	if err := c.open(ctx); err != nil {
		return nil, err
	}
	return s, nil
}
