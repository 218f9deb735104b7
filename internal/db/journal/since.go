package journal

import (
	"context"

	"github.com/ckptsidecar/ckptsidecar/internal/fleet"
	"github.com/jmoiron/sqlx"
)

// Since reads what was committed after a mark, up to the limits, from one snapshot. Each run in the
// result is exactly as it is in that snapshot.
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

func (r *reading) read(ctx context.Context, q *sqlx.Tx) error {
	if err := r.readEnds(ctx, q); err != nil {
		return err
	}
	if r.Head == r.From.N && len(r.choice.Also) == 0 { // the usual case, ten times a second
		return nil
	}
	rows, err := r.readLog(ctx, q)
	if err != nil || rows+len(r.choice.Also) == 0 {
		return err
	}
	r.noteAlso()
	if r.To.N < r.Head { // later rows may have changed the runs too
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

// readEnds reads the numbers of the last row of the log and of the last archived row.
func (r *reading) readEnds(ctx context.Context, q *sqlx.Tx) error {
	return q.QueryRowxContext(ctx, `SELECT coalesce((SELECT max(n) FROM acts), 0), (`+lastArchived+`)`).
		Scan(&r.Head, &r.archived)
}
