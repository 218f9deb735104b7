package ledger

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db/blob"
	"github.com/ckptsidecar/ckptsidecar/internal/db/sqlite"
	"github.com/ckptsidecar/ckptsidecar/internal/db/usage"
	"github.com/jmoiron/sqlx"
)

// Core is the common base of all parts of the store.
type Core struct {
	Opt        Options
	Log        *slog.Logger
	Engine     *sqlite.Engine
	RO         *sqlx.DB  // the engine's read connections
	Head       ChainHead // the end of the audit log; only for the writer
	shown      shownHead // the head for all others
	RunCache   runCache  // only for the writer
	names      names     // names in the audit log; only for the writer
	chainKey   string    // the secret in the hashes of the audit log
	agents     agentCache
	elsewhere  elsewhere
	newest     newestOf // the newest checkpoint of each agent
	States     *blob.States
	Preparer   blob.Preparer // prepares states before they reach the writer
	Damages    damages       // checkpoints that are known to be damaged
	Trust      trust         // what is known to be wrong with the audit log
	Usage      *usage.Meter
	Beats      beats
	feed       feed
	foreign    foreignReads // reads of administrators that are counted
	acts       []act        // a buffer for the rows of a transaction; only for the writer
	actColumns []any        // a buffer for the columns of some of them; only for the writer
	Commits    atomic.Int64 // transactions committed since the start; not shown to callers
	ID         string       // of this database, made when the database was made

	// ForgetPast forgets what is in memory about a run. OnDamage makes a finding of a damaged
	// checkpoint. Drift sets both.
	ForgetPast func(runID int64)
	OnDamage   func(tx *Tx, runID, seq int64, damage *blob.DamageError) error
	// RolledBack forgets what a transaction may have changed in memory.
	RolledBack func(tx *Tx)

	present *Tx // the transaction that the writer is in, or was in last

	hooks   atomic.Pointer[[]Hook] // the hooks and the notices that each gets
	notices Changes

	closed atomic.Bool // Close was called
	noted  time.Time   // when maintenance last noted the head of the audit log
}

// shownHead is the end of the audit log, for readers other than the writer.
type shownHead struct {
	mu   sync.Mutex
	head ChainHead
}

// Secret derives a secret of this database for one purpose.
func (s *Core) Secret(purpose string) []byte {
	mac := hmac.New(sha256.New, []byte(s.chainKey))
	mac.Write([]byte(purpose))
	return mac.Sum(nil)
}

// setHead notes where the audit log ends. Only the writer calls it, or the start before there are
// writes.
func (s *Core) setHead(head ChainHead) {
	s.Head = head
	s.shown.mu.Lock()
	defer s.shown.mu.Unlock()
	s.shown.head = head
}

// showHead returns where the audit log ends on disk.
func (s *Core) showHead() ChainHead {
	s.shown.mu.Lock()
	defer s.shown.mu.Unlock()
	return s.shown.head
}

// Committed is the number of the newest row of the audit log on disk.
func (s *Core) Committed() int64 { return s.showHead().N }

// Maintain does the maintenance until the context ends or the store must stop. It watches the
// files, copies the log and gives free pages back. It returns a *FatalError at a fail-stop.
func (s *Core) Maintain(ctx context.Context) error { return s.Engine.Maintain(ctx) }

// Upkeep does at once what Maintain does when it is due: it copies the log and
// gives free pages back.
func (s *Core) Upkeep(ctx context.Context) error { return s.Engine.Upkeep(ctx) }

// Failed is closed when the store has stopped acknowledging. The process should then end, and a new
// process decide.
func (s *Core) Failed() <-chan struct{} { return s.Engine.Failed() }

// Fault says why the store has stopped acknowledging, nil if it has not.
func (s *Core) Fault() error { return s.Engine.Fault() }

// Stalled is for how long the writer has had work without making progress.
func (s *Core) Stalled() time.Duration { return s.Engine.Stalled() }

// Behind is for how long the writer has had work and has committed none of it, because it makes no
// progress or because it cannot get its lock, however often it tries.
func (s *Core) Behind() time.Duration { return s.Engine.Behind() }

// GiveUp is a fail-stop of a writer that has been behind for too long.
func (s *Core) GiveUp(behind time.Duration) { s.Engine.GiveUp(behind) }

// agentCache spares each save two lookups. It holds only committed rows. The writer, which alone
// changes agents, keeps it up to date.
type agentCache struct{ rows sync.Map } // agentKey to *agentRow

// Tx is the writer's transaction as the store sees it. It has one time, and carries the chain of
// the audit log. The fields of operation belong to the operation that is being applied.
type Tx struct {
	*sqlite.Tx
	Store   *Core
	Now     ckpt.Time
	Trusted ckpt.Time // now, or the zero time while the clock guard holds ages back
	Head    ChainHead
	acts    []act                  // rows of the audit log that are not written yet
	changed []changed              // changes to report to watchers
	Tally   usage.Tally            // what the transaction adds to each owner's bytes
	agents  map[AgentKey]*AgentRow // agents that this transaction changed; nil is one that is gone
	Watched []int64                // runs whose watches it may have changed
	operation
}

// operation is what a transaction keeps for the operation that it is applying.
type operation struct {
	Made   []ckpt.Finding // findings that it has made
	Run0   *RunRow        // the run that it is about
	Watch0 any            // what the watcher of that run keeps about it
	damage []error        // checkpoints that it found damaged

	declared bool      // Touches was called
	touched  []*RunRow // the runs that Touches was called with
}

// Touches declares that, of what the run cache has, the present operation changes only these runs and those of other calls. The writer forgets
// all runs after an operation that changes something and declares nothing.
func (tx *Tx) Touches(runs ...*RunRow) {
	tx.declared = true
	tx.touched = append(tx.touched, runs...)
}

// ForgetRuns forgets what is known of all runs: their names or what they keep have changed.
func (tx *Tx) ForgetRuns() {
	tx.Store.RunCache.ForgetAll()
	tx.Store.names.lives = nil
}

// forgetTouched forgets of the run cache what the present operation has changed.
func (tx *Tx) forgetTouched() {
	s := tx.Store
	switch {
	case !tx.Wrote:
	case tx.declared:
		for _, run := range tx.touched {
			s.RunCache.Forget(run)
		}
	default:
		tx.ForgetRuns()
	}
}

// Op is one operation of the store for the writer. Do may run more than once, because a transaction
// may be tried again: it must set its results anew each time. If it refuses, it must do so before
// it changes anything.
type Op struct {
	Owner string // the owner in the fair queue
	Size  int64  // bytes that it carries
	Claim sqlite.Claim
	Zero  bool       // see sqlite.Op
	Entry AuditEntry // the entry that records a refusal; without an Action, none is recorded
	Do    func(*Tx) error
}

// apply runs an operation in a transaction, and returns the damaged checkpoints that it found.
func (o *Op) apply(tx *Tx) (damage []error, err error) {
	tx.operation = operation{}
	before := tx.Tally.Of(o.Entry.Owner)
	if err := o.Do(tx); err != nil {
		return tx.damage, err
	}
	tx.forgetTouched()
	return tx.damage, tx.Store.Usage.Check(&tx.Tally, before, o.Entry.Owner, tx.Stored, o.Size, o.Claim)
}
