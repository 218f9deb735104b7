package journal

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/jmoiron/sqlx"

	"github.com/ckptsidecar/ckptsidecar/internal/db/blob"
	"github.com/ckptsidecar/ckptsidecar/internal/fleet"
)

// segmentsOf returns the segments of a run by their ids.
func segmentsOf(r *fleet.LostRun) map[int64]*fleet.Segment {
	all := make(map[int64]*fleet.Segment, len(r.Segments))
	for i := range r.Segments {
		all[r.Segments[i].ID] = &r.Segments[i]
	}
	return all
}

// stateOf builds a state from its pieces.
func stateOf(segments map[int64]*fleet.Segment, c *fleet.Checkpoint) ([]byte, error) {
	row := &blob.StateRow{N: c.N, ID: c.ID, Size: c.Size, SHA256: c.SHA256, Body: c.Body, Pieces: c.Pieces}
	return blob.Join(row, inflated(segments))
}

// inflated returns the bytes of segments.
func inflated(segments map[int64]*fleet.Segment) func(id int64) ([]byte, error) {
	return func(id int64) ([]byte, error) {
		s, there := segments[id]
		if !there {
			return nil, fmt.Errorf("segment %d is missing", id)
		}
		return blob.Inflate(s.Data, s.Size)
	}
}

// ErasureOf is the row of the audit log of the last erasure of an agent, 0 if there is none.
func (j *Journal) ErasureOf(ctx context.Context, owner, agent string) (n int64, err error) {
	err = j.core.Reading(ctx, func(q *sqlx.Tx) error {
		return q.GetContext(ctx, &n, `SELECT n FROM audit_log
			WHERE action = 'erase' AND outcome = 'done' AND owner = ? AND agent = ? ORDER BY n DESC LIMIT 1`, owner, agent)
	})
	if errors.Is(err, sql.ErrNoRows) {
		err = nil
	}
	return n, err
}

// Erasure returns the agent that a row of the audit log has erased, "" if the row is no erasure.
func (j *Journal) Erasure(ctx context.Context, n int64) (owner, agent string, err error) {
	err = j.core.Reading(ctx, func(q *sqlx.Tx) error {
		return q.QueryRowxContext(ctx, `SELECT owner, agent FROM audit_log
			WHERE n = ? AND action = 'erase' AND outcome = 'done'`, n).Scan(&owner, &agent)
	})
	if errors.Is(err, sql.ErrNoRows) {
		err = nil
	}
	return owner, agent, err
}
