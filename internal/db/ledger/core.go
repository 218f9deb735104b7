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

// Core is what every part of the store works on.
type Core struct {
	Opt          Options
	Log          *slog.Logger
	Engine       *sqlite.Engine
	RO           *sqlx.DB  // the engine's connections that read
	Head         ChainHead // the end of the audit log; the writer's
	shown        shownHead // head, for those who are not the writer
	RunCache     runCache  // the writer's
	names        names     // in the audit log; the writer's
	chainKey     string    // the secret in the hashes of the audit log
	segmentsFrom int64     // what the numbers of segments begin after
	oldKeys      bool      // whether saves of an older version may be asked for again
	agents       agentCache
	elsewhere    elsewhere
	fullOwners   fullOwners
	fleetID      atomic.Pointer[string] // nil where it is the database's own
	newest       newestOf               // checkpoint of each agent
	States       *blob.States
	Preparer     blob.Preparer // of states, before they go to the writer
	Damages      damages       // checkpoints that are known to be damaged
	Trust        trust         // what is known to be wrong with the audit log
	Usage        *usage.Meter
	feed         feed
	foreign      foreignReads // reads of administrators that are counted
	acts         []act        // room for those of a transaction; the writer's
	actColumns   []any        // room for the columns of some of them; the writer's
	Commits      atomic.Int64 // transactions that were committed since the start; nobody is told it
	ID           string       // of this database, made when it was

	// forgetPast forgets what is kept of a run in memory. onDamage makes a finding
	// of a damaged checkpoint. Drift sets both.
	ForgetPast func(runID int64)
	OnDamage   func(tx *Tx, runID, seq int64, damage *blob.DamageError) error
	// rolledBack forgets what a transaction may have changed in memory.
	RolledBack func(tx *Tx)

	hooks   atomic.Pointer[[]Hook] // who is told of what
	notices Changes

	closed atomic.Bool // Close was called
	noted  time.Time   // when maintenance last noted the head of the audit log
}

// shownHead is the end of the audit log as everybody may read it.
type shownHead struct {
	mu   sync.Mutex
	head ChainHead
}

// Secret is a secret of this database for one purpose.
func (s *Core) Secret(purpose string) []byte {
	mac := hmac.New(sha256.New, []byte(s.chainKey))
	mac.Write([]byte(purpose))
	return mac.Sum(nil)
}

// setHead notes where the audit log ends. The caller is the writer, or nobody
// writes yet.
func (s *Core) setHead(head ChainHead) {
	s.Head = head
	s.shown.mu.Lock()
	defer s.shown.mu.Unlock()
	s.shown.head = head
}

// showHead is where the audit log ends on disk.
func (s *Core) showHead() ChainHead {
	s.shown.mu.Lock()
	defer s.shown.mu.Unlock()
	return s.shown.head
}

// Committed is the number of the newest row of the audit log on disk.
func (s *Core) Committed() int64 { return s.showHead().N }

// Maintain does the maintenance until the context ends or the store must stop: it
// watches the files, copies the log and gives free pages back. It answers a
// *FatalError at a fail-stop.
func (s *Core) Maintain(ctx context.Context) error { return s.Engine.Maintain(ctx) }

// Upkeep does at once what Maintain does when it is due: it copies the log and
// gives free pages back.
func (s *Core) Upkeep(ctx context.Context) error { return s.Engine.Upkeep(ctx) }

// Failed is closed when the store has stopped acknowledging; the process
// should end, and a fresh one decide.
func (s *Core) Failed() <-chan struct{} { return s.Engine.Failed() }

// Fault is why the store has stopped acknowledging, nil while it has not.
func (s *Core) Fault() error { return s.Engine.Fault() }

// Stalled is for how long the writer has had work and not got on with it.
func (s *Core) Stalled() time.Duration { return s.Engine.Stalled() }

// Behind is for how long the writer has had work and committed nothing of it: it
// stands still, or it is kept from its lock, however often it tries.
func (s *Core) Behind() time.Duration { return s.Engine.Behind() }

// GiveUp is a fail-stop of a writer that has been behind for too long.
func (s *Core) GiveUp(behind time.Duration) { s.Engine.GiveUp(behind) }

// agentCache spares each save two look-ups. It holds committed rows alone; the
// writer, the only one who changes agents, keeps it.
type agentCache struct{ rows sync.Map } // agentKey to *agentRow

// Tx is the writer's transaction as the store sees it. It has one time, and
// carries the chain of the audit log. What stands below `present` is of the
// operation that is being applied.
type Tx struct {
	*sqlite.Tx
	Store   *Core
	Now     ckpt.Time
	Trusted ckpt.Time // now, or the zero time while the clock guard holds ages back
	Head    ChainHead
	acts    []act                  // rows of the audit log that are still to be written
	changed []changed              // what is to be told to those who watch
	Tally   usage.Tally            // what it adds to each owner's bytes
	agents  map[AgentKey]*AgentRow // agents that this transaction changed; nil is one that is gone
	Watched []int64                // runs whose watches it may have changed
	present
}

// present is what a transaction keeps for the operation that it applies.
type present struct {
	Made   []ckpt.Finding // findings that it has made
	Run0   *RunRow        // the run that it is about
	Watch0 any            // what is kept of that run by who watches it
	damage []error        // checkpoints that it found damaged

	touches *RunRow // the one run that it changes; nil where it may change others
}

// Touches declares that the present operation changes no other run from here on, so the
// writer forgets only what it knows of this one. Remove and NoteSaved may still change
// others: they tell the run cache themselves.
func (tx *Tx) Touches(run *RunRow) { tx.touches = run }

// statement is what the store has to know of a statement.
type statement struct {
	usage.Statement
	forgets bool // it changes what the run cache knows, and is not one of those that tell it
}

// Op is one operation of the store on its way through the writer. apply may run
// more than once, because a transaction may be tried again: it must set its
// results anew each time. It must refuse, where it does, before it changes
// anything.
type Op struct {
	Owner string // whose share of the queue it takes
	Size  int64  // bytes that it carries
	Claim sqlite.Claim
	Entry AuditEntry // what a refusal is recorded as; without an Action it is not
	Do    func(*Tx) error

	damage []error // checkpoints that it found damaged
	sent   sqlite.Op
}

// Apply is what the engine calls.
func (o *Op) Apply(t *sqlite.Tx) error {
	tx := t.Domain.(*Tx)
	tx.present = present{}
	tx.Tally.Begin()
	before := tx.Tally.Of(o.Entry.Owner)
	defer func() { o.damage, tx.touches = tx.damage, nil }()
	if err := o.Do(tx); err != nil {
		return err
	}
	return tx.Store.Usage.Check(&tx.Tally, before, o.Entry.Owner, o.Size, o.Claim)
}
