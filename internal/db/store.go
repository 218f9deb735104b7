package db

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/ckptsidecar/ckptsidecar/internal/db/archive"
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

// What the engine answers where a start or a write must not go on.
type (
	// OperatorError stops a start until somebody has fixed its cause.
	OperatorError = sqlite.OperatorError
	// FatalError is a fail-stop: the store has stopped acknowledging because what
	// is on disk is not known any more. A fresh process decides.
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
	*archive.Archive
	*spans.Spans
	*files.Files
	*surveys.Surveys
	*policies.Policies
	verifying sync.Mutex // held while the audit log is read as a whole
	events    ledger.Changes
	prompts   ledger.Changes           // of their answers
	keysSeen  atomic.Pointer[keyPlace] // where Expire goes on
	idsSeen   atomic.Pointer[keyPlace] // the same of ids
}

// Open opens the database, makes it where there is none, brings its schema up
// to date, and checks it where the last daemon stopped because of a fault.
//
// Its errors are ErrLocked where another daemon has the database, and
// *OperatorError where somebody must mend something first.
func Open(ctx context.Context, opt Options) (*Store, error) {
	c, err := ledger.NewCore(opt)
	if err != nil {
		return nil, err
	}
	d := driftlog.New(c)
	v := saves.New(d)
	s := &Store{Core: c, Drifts: d, Saves: v, Threads: langgraph.New(v), Spans: spans.New(d), Files: files.New(d),
		Surveys: surveys.New(c), Policies: policies.New(c)}
	s.Archive = archive.New(d, archive.Graphs{Imported: langgraph.GraphImported, RunName: langgraph.RunName}, s.Files)
	v.Trees = s.Files
	if err := c.Open(ctx); err != nil {
		return nil, err
	}
	return s, nil
}
