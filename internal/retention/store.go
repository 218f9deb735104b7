package retention

import (
	"context"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

// store is what the worker needs of the database. Runs and agents go by their
// row ids, so that nothing here needs a type of this package. Each call is one
// short transaction that decides on what it finds inside it; what is handed in
// as a function is called there. Each errs with a *ckpt.Error.
type store interface {
	// Due answers the runs of which something may have to go, by ascending id:
	// those after the given one, at most limit. It may name a run in vain, but
	// leaves none out for which Plan or Over would answer yes. Where now is
	// zero, ages make nothing due.
	Due(ctx context.Context, now time.Time, after int64, limit int) ([]int64, error)

	// Apply asks plan about each of the runs, by its agent's policy, and removes
	// what it says, the oldest first and at most limit in all, each with an audit
	// row that has the reason. Fewer than limit means that all is done. A run
	// that is gone is passed over. A dry run answers everything that would go.
	Apply(ctx context.Context, runs []int64, plan Func, now time.Time, limit int, dry bool) ([]ckpt.Removal, error)

	// Drop removes those of the runs that are over and have no checkpoint left,
	// with their steps, operations, events, findings and prompts and an audit
	// row each. It stops when the transaction grows long, and then says more.
	Drop(ctx context.Context, runs []int64, over func(History, ckpt.Policy, time.Time) bool, now time.Time) (dropped int, more bool, err error)

	// OverBudget answers agents that have more stored than their policy's
	// max_bytes, by ascending id: those after the given one, at most limit.
	OverBudget(ctx context.Context, after int64, limit int) ([]int64, error)

	// Trim measures how far an agent, or the wholeDatabase, is over its budget,
	// asks budget about its runs, removes as Apply does, and measures again: over
	// is what is then still too much, 0 or less for nothing. Of very many runs it
	// may hand in only some, of which something may go.
	Trim(ctx context.Context, agent int64, budget func([]History, int64) ([]Verdict, int64), limit int,
		dry bool) (removed []ckpt.Removal, over int64, err error)

	// Expire forgets the idempotency keys that were first used before a time,
	// the oldest first and at most limit, and answers how many.
	Expire(ctx context.Context, before time.Time, limit int) (int, error)

	// Judged notes when all ages were last judged, for audit_violations. A zero
	// time says that they cannot be judged now: a note ahead of the wall clock,
	// from before it was set back, is then taken away.
	Judged(ctx context.Context, at time.Time) error
}

// wholeDatabase is the agent id that stands for all of them.
const wholeDatabase int64 = 0
