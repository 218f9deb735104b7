package journal

import (
	"context"

	"github.com/ckptsidecar/ckptsidecar/internal/db/ledger"
	"github.com/ckptsidecar/ckptsidecar/internal/fleet"
	"github.com/jmoiron/sqlx"
)

// Journal reads what was committed.
type Journal struct {
	core   *ledger.Core
	agents agentLines
}

// New makes a Journal over a store.
func New(c *ledger.Core) *Journal { return &Journal{core: c} }

// Known is what is known of the segments that the engine has.
type Known interface {
	// Has says whether it has a segment of a run.
	Has(runUID string, segment int64) bool
	// HasNone says whether it surely has none of a run, of any database.
	HasNone(runUID string) bool
}

// Since reads what was committed after a mark, at most limits, on one snapshot. Each
// run in it is exactly as it is on that snapshot.
func (j *Journal) Since(ctx context.Context, from fleet.Mark, limits fleet.Limits, choice Choice, known Known) (*fleet.Changes, error) {
	for {
		r := newReading(j, from, limits, choice, known)
		err := j.core.Reading(ctx, func(q *sqlx.Tx) error { return r.read(ctx, q) })
		switch {
		case err != nil:
			return nil, err
		case r.fewer == 0:
			return &r.Changes, nil
		}
		limits.Rows = r.fewer
	}
}

type place struct{ owner, agent, run string }

func (p place) ofAgent() place { return place{owner: p.owner, agent: p.agent} }

// reading is one call of Since. The number of its statements does not grow with the
// number of runs that were saved to, because a statement costs as much as what it reads.
type reading struct {
	fleet.Changes
	journal  *Journal
	known    Known
	limits   fleet.Limits
	choice   Choice
	archived int64 // the last row of the log that is archived
	runs     map[place]*touched
	order    []place
	agents   map[place]bool
	ids      map[place]agentID // of the agents that are here and are shipped
	local    map[place]bool    // agents that stay on this host
	asked    map[place]bool    // agents whose policies may have changed
	owners   []string          // whose agents' policies changed all at once; ckpt.AllOwners for everybody's
	all      map[place]part    // agents whose runs are all to be read, and how much of each
	first    map[place]int     // how many rows of the log come before the first that names a run
	gone     map[place][]int64 // the checkpoints that rows say went, by n
	fewer    int               // it is too much: so many rows are enough
}

func newReading(j *Journal, from fleet.Mark, limits fleet.Limits, choice Choice, known Known) *reading {
	return &reading{Changes: fleet.Changes{From: from, To: from}, journal: j, known: known, limits: limits, choice: choice,
		runs: map[place]*touched{}, agents: map[place]bool{}, ids: map[place]agentID{}, local: map[place]bool{}, asked: map[place]bool{},
		all: map[place]part{}, first: map[place]int{}, gone: map[place][]int64{}}
}

func (r *reading) read(ctx context.Context, q *sqlx.Tx) error {
	if err := r.readEnds(ctx, q); err != nil {
		return err
	}
	if r.Head == r.From.N && len(r.choice.Also) == 0 { // this is asked ten times a second
		return nil
	}
	rows, err := r.readLog(ctx, q)
	if err != nil || rows+len(r.choice.Also) == 0 {
		return err
	}
	r.noteAlso()
	if r.To.N < r.Head { // rows that come later may have changed the runs too
		for _, t := range r.runs {
			t.whole = true
		}
	}
	r.noteArchived()
	for _, step := range []func(context.Context, *sqlx.Tx) error{r.eraseStays, r.findAgents, r.readAgents, r.readGone, r.readRuns} {
		if err := step(ctx, q); err != nil {
			return err
		}
	}
	return nil
}

// readEnds reads where the log ends, and where its archives do.
func (r *reading) readEnds(ctx context.Context, q *sqlx.Tx) error {
	return q.QueryRowxContext(ctx, `SELECT coalesce((SELECT max(n) FROM acts), (SELECT max(n) FROM audit_log_3), 0), (`+lastArchived+`)`).
		Scan(&r.Head, &r.archived)
}

func (r *reading) touch(p place) *touched {
	t := r.runs[p]
	if t == nil {
		t = &touched{some: map[string][]string{}}
		r.runs[p] = t
		r.order = append(r.order, p)
		r.first[p] = max(0, len(r.Journal)-1)
	}
	return t
}

// tooMuch says, before a run is read, that what was read so far is enough: the rows of
// the log that come before the run make a batch. The first run is read in any case.
func (r *reading) tooMuch(p place) bool {
	before := r.first[p]
	if p == r.order[0] || before == 0 || r.Size <= r.limits.Bytes {
		return false
	}
	r.fewer = before
	return true
}
