package journal

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/jmoiron/sqlx"

	"github.com/ckptsidecar/ckptsidecar/internal/db/copy"
	"github.com/ckptsidecar/ckptsidecar/internal/fleet"
)

// checkpointsAfter reads the checkpoints of runs, ?1, that came after a row of the audit log, ?2,
// or all of them if ?3 is set. Older ones come without their states.
var checkpointsAfter = `SELECT e.key, c.n, c.id, c.seq, c.kind, c.suspect, c.sha256, c.size, CASE WHEN c.n > ?2 THEN c.pieces END,
	CASE WHEN c.n > ?2 THEN c.body END, ` + copy.CheckpointColumns + ` FROM json_each(?1) e
	CROSS JOIN checkpoints c ON c.run_id = e.value AND (c.n > ?2 OR ?3)`

// readStates reads the checkpoints of runs that came after the mark. If a run is read whole, it
// also reads what can have changed about its other checkpoints.
func (r *reading) readStates(ctx context.Context, q *sqlx.Tx, list []*found) error {
	from := r.From.N
	if list[0].touched.full {
		from = 0
	}
	rows, err := q.QueryxContext(ctx, checkpointsAfter, numbersOf(list), from, list[0].Whole)
	if err != nil {
		return err
	}
	defer rows.Close()
	var at int
	var c fleet.Checkpoint
	lines := copy.ScanCheckpoints(&at, &c.N, &c.ID, &c.Seq, &c.Kind, &c.Suspect, &c.SHA256, &c.Size, &c.Pieces, &c.Body)
	for last := 0; rows.Next(); last = at {
		if c.Doc, err = lines.Scan(rows); err != nil {
			return err
		}
		run := list[at]
		if at != last && r.tooMuch(run.place) {
			return nil
		}
		run.Live = append(run.Live, c.N)
		if c.N <= from {
			run.Marked = append(run.Marked, c)
			continue
		}
		run.Checkpoints, r.Size = append(run.Checkpoints, c), r.Size+int64(len(c.Body)+len(c.Doc))
	}
	return rows.Err()
}

// numbersOf returns the numbers of runs as a JSON array.
func numbersOf(list []*found) string {
	ids := make([]int64, len(list))
	for i, run := range list {
		ids[i] = run.id
	}
	return list64(ids)
}

// list64 encodes numbers as a JSON array.
func list64(numbers []int64) string {
	text, _ := json.Marshal(numbers) // numbers can always be encoded
	return string(text)
}

// readPieces reads the segments of new states that the engine may not have, or all segments if a
// run is read with all of its checkpoints.
func (r *reading) readPieces(ctx context.Context, q *sqlx.Tx, list []*found) error {
	var ids []int64
	var of []*found
	for _, run := range list {
		needed, err := r.piecesOf(run)
		if err != nil {
			return err
		}
		for _, id := range needed {
			ids, of = append(ids, id), append(of, run)
		}
	}
	if len(ids) == 0 {
		return nil
	}
	rows, err := q.QueryxContext(ctx, `SELECT e.key, s.id, s.size, s.data FROM json_each(?) e CROSS JOIN segments s ON s.id = e.value`, list64(ids))
	if err != nil {
		return err
	}
	defer rows.Close()
	n, at := 0, 0
	for last := 0; rows.Next(); n, last = n+1, at {
		var s fleet.Segment
		if err := rows.Scan(&at, &s.ID, &s.Size, &s.Data); err != nil {
			return err
		}
		run := of[at]
		if run != of[last] && r.tooMuch(run.place) {
			return nil
		}
		run.Pieces, r.Size = append(run.Pieces, s), r.Size+int64(len(s.Data))
	}
	if err := rows.Err(); err != nil || n == len(ids) {
		return err
	}
	return fmt.Errorf("%d segments of states are missing in this host's database: run `ckptsidecar verify`", len(ids)-n)
}

// piecesOf returns the segments that the new states of a run need and that must be read.
func (r *reading) piecesOf(run *found) (list []int64, err error) {
	seen := map[int64]bool{}
	for i := range run.Checkpoints {
		c := &run.Checkpoints[i]
		if c.Pieces == nil {
			continue
		}
		var pieces [][3]int64
		if err := json.Unmarshal([]byte(*c.Pieces), &pieces); err != nil {
			return nil, err
		}
		for _, p := range pieces {
			if id := p[0]; !seen[id] && (run.touched.full || !r.known.Has(run.UID, id)) {
				seen[id] = true
				list = append(list, id)
			}
		}
	}
	return list, nil
}

// readSegments lists the remaining segments of runs from which checkpoints were removed, so that
// the engine drops the others.
func (r *reading) readSegments(ctx context.Context, q *sqlx.Tx, list []*found) error {
	var trimmed []*found
	for _, run := range list {
		if run.Whole || len(run.Gone) > 0 && !(len(run.Pieces) == 0 && r.known.HasNone(run.UID)) {
			run.Trim = true
			trimmed = append(trimmed, run)
		}
	}
	if len(trimmed) == 0 {
		return nil
	}
	rows, err := q.QueryxContext(ctx, `SELECT e.key, s.id FROM json_each(?) e CROSS JOIN segments s ON s.run_id = e.value`,
		numbersOf(trimmed))
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var at int
		var id int64
		if err := rows.Scan(&at, &id); err != nil {
			return err
		}
		trimmed[at].Segments = append(trimmed[at].Segments, id)
	}
	return rows.Err()
}
