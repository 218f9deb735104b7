package ledger

import (
	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db/sqlite"
	"github.com/ckptsidecar/ckptsidecar/internal/db/usage"
)

// Tx is the writer's transaction as the store sees it. It has one time, and
// carries the chain of the audit log. What stands below `present` is of the
// operation that is being applied.
type Tx struct {
	*sqlite.Tx
	Store   *Core
	Now     ckpt.Time
	Trusted ckpt.Time // now, or the zero time while the clock guard holds ages back
	Head    ChainHead
	log     []ckpt.AuditRow        // rows of the audit log that are still to be written
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
}

// statement is what the store has to know of a statement.
type statement struct {
	usage.Statement
	forgets bool // it changes what hotRuns know, and is not one of those that tell them
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
	defer func() { o.damage = tx.damage }()
	if err := o.Do(tx); err != nil {
		return err
	}
	return tx.Store.Usage.Check(&tx.Tally, before, o.Entry.Owner, o.Size, o.Claim)
}

// write puts an operation through the writer and waits for its end. It does not
// end early when the caller hangs up: what has begun is finished.
func (s *Core) Submit(o *Op) error {
	if o.Claim != sqlite.Frees {
		s.Usage.RecountIfTight(o.Entry.Owner, o.Size)
	}
	o.sent = sqlite.Op{Owner: o.Owner, Size: o.Size, Claim: o.Claim, Do: o}
	err := s.Engine.Write(&o.sent)
	for _, damage := range o.damage {
		s.ReportDamage(damage)
	}
	return err
}
