package retention

import (
	"context"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

// store is what the worker needs from the database. Runs and agents are named by their
// row ids, so that the interface needs no types for them. Each call is one short
// transaction. It decides on what it finds inside the transaction, and calls the
// functions that it is given there. Each call returns errors as *ckpt.Error.
type store interface {
	// Due returns the runs that may have something to remove, by ascending id: those after
	// the given one, at most limit. It may return a run that has nothing to remove, but
	// leaves out no run for which Plan or Over would remove something. If now is zero,
	// ages make nothing due.
	Due(ctx context.Context, now time.Time, after int64, limit int) ([]int64, error)

	// Apply asks plan about each of the runs, by its agent's policy, and removes what the
	// plan says, the oldest first and at most limit in all. Each removal gets an audit row
	// with the reason. If it returns fewer than limit, everything is done. It skips a run
	// that no longer exists. A dry run returns everything that would be removed.
	Apply(ctx context.Context, runs []int64, plan Func, now time.Time, limit int, dry bool) ([]ckpt.Removal, error)

	// Drop removes those of the runs that are over and have no checkpoint left, with their
	// steps, operations, events, findings and prompts, and writes an audit row for each.
	// It stops when the transaction becomes long, and then returns more.
	Drop(ctx context.Context, runs []int64, over func(History, ckpt.Policy, time.Time) bool, now time.Time) (dropped int, more bool, err error)

	// OverBudget returns agents that have more stored than their policy's max_bytes, by
	// ascending id: those after the given one, at most limit.
	OverBudget(ctx context.Context, after int64, limit int) ([]int64, error)

	// Trim measures how far an agent, or the wholeDatabase, exceeds its budget, asks
	// budget about its runs, removes as Apply does, and measures again. over is how much
	// is still too much then, 0 or less if the budget is met. If there are very many runs,
	// it may pass only some that have something to remove.
	Trim(ctx context.Context, agent int64, budget func([]History, int64) ([]Verdict, int64), limit int,
		dry bool) (removed []ckpt.Removal, over int64, err error)

	// Expire forgets the idempotency keys that were first used before a time, the oldest
	// first and at most limit, and returns how many.
	Expire(ctx context.Context, before time.Time, limit int) (int, error)

	// Judged notes when all ages were last judged, for audit_violations. A zero time says
	// that they cannot be judged now. Then it removes a note that is ahead of the wall
	// clock, which was made before the clock was set back.
	Judged(ctx context.Context, at time.Time) error
}

// wholeDatabase is the agent id that means all agents.
const wholeDatabase int64 = 0
