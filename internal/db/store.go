package db

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/ckptsidecar/ckptsidecar/internal/db/copy"
	"github.com/ckptsidecar/ckptsidecar/internal/db/driftlog"
	"github.com/ckptsidecar/ckptsidecar/internal/db/files"
	"github.com/ckptsidecar/ckptsidecar/internal/db/langgraph"
	"github.com/ckptsidecar/ckptsidecar/internal/db/ledger"
	"github.com/ckptsidecar/ckptsidecar/internal/db/policies"
	"github.com/ckptsidecar/ckptsidecar/internal/db/saves"
	"github.com/ckptsidecar/ckptsidecar/internal/db/spans"
	"github.com/ckptsidecar/ckptsidecar/internal/db/sqlite"
	"github.com/ckptsidecar/ckptsidecar/internal/db/surveys"
)

// The types of the engine that a start or a write uses.
type (
	// OperatorError stops a start until a person has fixed its cause.
	OperatorError = sqlite.OperatorError
	// FatalError is a fail-stop: the store has stopped acknowledging because it no longer knows
	// what is on disk. A new process decides.
	FatalError = sqlite.FatalError
	// Hook is a hook and the notices that it gets.
	Hook = ledger.Hook
	// Options are the settings of a store.
	Options = ledger.Options
)

// ErrLocked is the error of Open if another daemon uses the database.
var ErrLocked = sqlite.ErrLocked

// SQLiteVersion is the version of the SQLite that is built in.
func SQLiteVersion() string { return sqlite.Version() }

// Store is one open database.
type Store struct {
	*ledger.Core
	*driftlog.Drifts
	*saves.Saves
	*langgraph.Threads
	*copy.Copier
	*spans.Spans
	*files.Files
	*surveys.Surveys
	*policies.Policies
	verifying sync.Mutex   // held while the whole audit log is read
	owed      atomic.Bool  // erasures are not finished
	erasing   atomic.Int32 // calls that are about to finish one
	archives  atomic.Pointer[place]
	archiving sync.Mutex
	events    ledger.Changes
	prompts   ledger.Changes           // changes of prompts: answers and withdrawals
	keysSeen  atomic.Pointer[keyPlace] // where Expire continues
	idsSeen   atomic.Pointer[keyPlace] // the same for ids
}

// Open opens the database, creates it if there is none, brings its schema up to date, and checks it
// if the last daemon stopped because of a fault.
//
// Its errors are ErrLocked if another daemon has the database, and *OperatorError if a person must
// fix something first.
func Open(ctx context.Context, opt Options) (*Store, error) {
	c, err := ledger.NewCore(opt)
	if err != nil {
		return nil, err
	}
	d := driftlog.New(c)
	v := saves.New(d)
	s := &Store{Core: c, Drifts: d, Saves: v, Threads: langgraph.New(v), Spans: spans.New(d), Files: files.New(d),
		Surveys: surveys.New(c), Policies: policies.New(c)}
	s.Copier = copy.New(d, langgraph.GraphImported, s.Files.Imported)
	v.Trees = s.Files
	if err := c.Open(ctx); err != nil {
		return nil, err
	}
	if err := s.lookAtOwed(ctx); err != nil {
		_ = s.Close()
		return nil, err
	}
	if err := s.FinishErasures(ctx); err != nil {
		c.Log.Warn("an erasure that was interrupted could not be finished yet: the daemon tries again every minute", "error", err)
	}
	if err := s.Sweep(); err != nil {
		c.Log.Warn("temporary files of exports and imports could not be removed", "error", err)
	}
	return s, nil
}
