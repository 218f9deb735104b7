package pg

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/ckptsidecar/ckptsidecar/internal/fleet"
)

// The statements that read the contents of a run.
const (
	lostCheckpoints = `SELECT db, term, n, id, seq, kind, suspect, sha, size, pieces, body, doc, coalesce(key_id, '')
		FROM fleet_checkpoints WHERE run_uid = $1 ORDER BY term, seq`
	lostSegments = `SELECT id, size, data, coalesce(key_id, '') FROM fleet_segments WHERE run_uid = $1 AND db = $2`
	lostRows     = `SELECT kind, key, ord, doc, coalesce(key_id, '') FROM fleet_rows WHERE run_uid = $1 ORDER BY kind, ord, key`

	keysOfParts = `SELECT c.key_id FROM fleet_checkpoints c WHERE c.run_uid = $1 AND c.key_id IS NOT NULL GROUP BY c.key_id
		UNION ALL SELECT s.key_id FROM fleet_segments s WHERE s.run_uid = $1 AND s.key_id IS NOT NULL GROUP BY s.key_id
		UNION ALL SELECT s.key_id FROM fleet_rows s WHERE s.run_uid = $1 AND s.key_id IS NOT NULL GROUP BY s.key_id`
)

// Fill reads the contents of a run. The checkpoints are those of the last host that has
// shipped any: a host that took over the run ships them all again under its own term.
func (e *Engine) Fill(ctx context.Context, r *fleet.LostRun) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	db, err := e.fillFrom(ctx, lostCheckpoints, r)
	if err != nil {
		return err
	}
	r.DB = db
	if err := e.fillSegments(ctx, r); err != nil {
		return err
	}
	return e.fillRows(ctx, lostRows, r)
}

// KeysOfParts returns the names of the keys that the contents of a run are sealed with.
func (e *Engine) KeysOfParts(ctx context.Context, uid string) ([]string, error) {
	return e.names(ctx, keysOfParts, uid)
}

// fillRows reads rows of a run.
func (e *Engine) fillRows(ctx context.Context, query string, r *fleet.LostRun) error {
	rows, err := e.conn.Query(ctx, query, r.UID)
	if err != nil {
		return told(err)
	}
	var row fleet.Row
	_, err = pgx.ForEachRow(rows, []any{&row.Kind, &row.Key, &row.Order, &row.Doc, &row.KeyID},
		func() error { r.Rows = append(r.Rows, row); return nil })
	return told(err)
}

// fillSegments reads the segments of a run that one database has shipped.
func (e *Engine) fillSegments(ctx context.Context, r *fleet.LostRun) error {
	rows, err := e.conn.Query(ctx, lostSegments, r.UID, r.DB)
	if err != nil {
		return told(err)
	}
	var s fleet.Segment
	_, err = pgx.ForEachRow(rows, []any{&s.ID, &s.Size, &s.Data, &s.KeyID}, func() error {
		r.Segments = append(r.Segments, s)
		s.Data = nil
		return nil
	})
	return told(err)
}

// fillFrom reads checkpoints of a run, and returns the database that they come from.
func (e *Engine) fillFrom(ctx context.Context, query string, r *fleet.LostRun) (db string, err error) {
	rows, err := e.conn.Query(ctx, query, r.UID)
	if err != nil {
		return "", told(err)
	}
	var c fleet.Checkpoint
	var from string
	var term, newest, suspect int64
	_, err = pgx.ForEachRow(rows, []any{&from, &term, &c.N, &c.ID, &c.Seq, &c.Kind, &suspect, &c.SHA256, &c.Size, &c.Pieces, &c.Body, &c.Doc, &c.KeyID}, func() error {
		if term > newest || db == "" {
			r.Checkpoints, newest, db = nil, term, from
		}
		c.Suspect = suspect == 1
		r.Checkpoints = append(r.Checkpoints, c)
		c.Body, c.Pieces = nil, nil
		return nil
	})
	return db, told(err)
}
