package journal

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"

	"github.com/ckptsidecar/ckptsidecar/internal/db/archive"
	"github.com/ckptsidecar/ckptsidecar/internal/fleet"
	"github.com/jmoiron/sqlx"
)

type runRow struct {
	ID        int64  `db:"id"`
	UID       string `db:"uid"`
	AgentUID  string `db:"agent_uid"`
	Epoch     int64  `db:"epoch"`
	Status    string `db:"status"`
	UpdatedAt string `db:"updated_at"`
	LastSeq   int64  `db:"last_seq"`
	First     int64  `db:"first"`
}

// readRun reads a run as it is on the snapshot. One whose import has not ended is left
// out until it has.
func (r *reading) readRun(ctx context.Context, q *sqlx.Tx, p place) error {
	var row runRow
	err := q.GetContext(ctx, &row, `SELECT r.id, r.uid, a.uid AS agent_uid, r.epoch, r.status, r.updated_at, r.last_seq,
		coalesce((SELECT min(seq) FROM events e WHERE e.run_id = r.id), 0) AS first
		FROM runs r JOIN agents a ON a.id = r.agent_id WHERE a.owner = ? AND a.name = ? AND r.name = ?`, p.owner, p.agent, p.run)
	if errors.Is(err, sql.ErrNoRows) {
		r.Names = append(r.Names, fleet.Name{Owner: p.owner, Agent: p.agent, Run: p.run})
		return nil
	}
	if err != nil {
		return err
	}
	if half, err := archive.Half(ctx, q, row.ID); half || err != nil {
		return err
	}
	t := r.runs[p]
	run := fleet.Run{UID: row.UID, AgentUID: row.AgentUID, Owner: p.owner, Agent: p.agent, Name: p.run, Term: fleet.TermOf(row.Epoch), AsOf: r.Head,
		Status: row.Status, UpdatedAt: row.UpdatedAt, Seq: row.LastSeq, Whole: t.whole, FirstEvent: row.First}
	if run.Doc, err = archive.RunText(ctx, q, row.ID); err != nil {
		return err
	}
	some := t.some
	if t.whole {
		some = nil
	}
	rows, err := archive.RowsOf(ctx, q, row.ID, some)
	if err != nil {
		return err
	}
	for _, c := range rows {
		run.Rows, r.Size = append(run.Rows, fleet.Row{Kind: c.Kind, Key: c.Key, Order: c.Order, Doc: c.Text}), r.Size+int64(len(c.Text))
	}
	if err := r.readStates(ctx, q, row.ID, &run, t.full); err != nil {
		return err
	}
	if err := readWrites(ctx, q, row.ID, &run, t); err != nil {
		return err
	}
	r.Names = append(r.Names, fleet.Name{Owner: p.owner, Agent: p.agent, Run: p.run, UID: row.UID})
	r.Runs = append(r.Runs, run)
	return nil
}

// readWrites says what LangGraph's tasks have written that is still there, where
// checkpoints went. A save removes older ones too.
func readWrites(ctx context.Context, q *sqlx.Tx, id int64, run *fleet.Run, t *touched) (err error) {
	if run.Whole || !t.removed && len(run.Gone) == 0 {
		return nil
	}
	if err := q.GetContext(ctx, &run.TrimWrites, `SELECT EXISTS (SELECT 1 FROM graph_threads WHERE run_id = ?)`, id); err != nil || !run.TrimWrites {
		return err
	}
	run.Writes, err = archive.WriteKeys(ctx, q, id)
	return err
}

type stateRow struct {
	Slot    int64   `db:"slot"`
	N       int64   `db:"n"`
	ID      string  `db:"id"`
	Seq     int64   `db:"seq"`
	Kind    string  `db:"kind"`
	Suspect bool    `db:"suspect"`
	SHA256  string  `db:"sha256"`
	Size    int64   `db:"size"`
	Pieces  *string `db:"pieces"`
	Body    []byte  `db:"body"`
}

// readStates reads the checkpoints that came after the mark with the segments that they
// need, what may have changed of the others, and which of all went.
func (r *reading) readStates(ctx context.Context, q *sqlx.Tx, id int64, run *fleet.Run, all bool) error {
	from := r.From.N
	if all {
		from = 0
	}
	var rows []stateRow
	err := q.SelectContext(ctx, &rows, `SELECT slot, n, id, seq, kind, suspect, sha256, size, CASE WHEN n > ?2
		THEN pieces END AS pieces, CASE WHEN n > ?2 THEN body END AS body
		FROM checkpoints WHERE run_id = ?1 AND (n > ?2 OR ?3) ORDER BY n`, id, from, run.Whole)
	if err != nil {
		return err
	}
	for i := range rows {
		s := &rows[i]
		c := fleet.Checkpoint{N: s.N, ID: s.ID, Seq: s.Seq, Kind: s.Kind, Suspect: s.Suspect, SHA256: s.SHA256, Size: s.Size,
			Pieces: s.Pieces, Body: s.Body}
		if c.Doc, err = archive.CheckpointText(ctx, q, s.Slot); err != nil {
			return err
		}
		run.Live = append(run.Live, s.N)
		if s.N <= from {
			run.Marked = append(run.Marked, c)
			continue
		}
		run.Checkpoints, r.Size = append(run.Checkpoints, c), r.Size+int64(len(c.Body)+len(c.Doc))
		if err := r.readPieces(ctx, q, run, s.Pieces, all); err != nil {
			return err
		}
	}
	return r.readGone(ctx, q, id, run)
}

// readPieces reads the segments of a state that the engine may not have, or all of them.
func (r *reading) readPieces(ctx context.Context, q *sqlx.Tx, run *fleet.Run, pieces *string, all bool) error {
	if pieces == nil {
		return nil
	}
	var list [][3]int64
	if err := json.Unmarshal([]byte(*pieces), &list); err != nil {
		return err
	}
	for _, p := range list {
		if !all && r.known(run.UID, p[0]) || has(run.Pieces, p[0]) {
			continue
		}
		s := fleet.Segment{ID: p[0]}
		if err := q.QueryRowxContext(ctx, `SELECT size, data FROM segments WHERE id = ?`, p[0]).Scan(&s.Size, &s.Data); err != nil {
			return err
		}
		run.Pieces, r.Size = append(run.Pieces, s), r.Size+int64(len(s.Data))
	}
	return nil
}

func has(list []fleet.Segment, id int64) bool {
	for i := range list {
		if list[i].ID == id {
			return true
		}
	}
	return false
}

// readGone finds the checkpoints that rows of the batch say went, and where any did the
// segments that are left.
func (r *reading) readGone(ctx context.Context, q *sqlx.Tx, id int64, run *fleet.Run) error {
	err := q.SelectContext(ctx, &run.Gone, `SELECT a.gone FROM acts a JOIN places p ON p.id = a.place
		WHERE a.n > ?1 AND a.n <= ?2 AND a.gone IS NOT NULL AND p.owner = ?3 AND p.agent = ?4 AND p.run = ?5
		UNION SELECT json_extract(e.value, '$[0]') FROM acts a JOIN places p ON p.id = a.place, json_each(a.more, '$.removed') e
		WHERE a.n > ?1 AND a.n <= ?2 AND a.more IS NOT NULL AND p.owner = ?3 AND p.agent = ?4
		AND p.run = ?5`, r.From.N, r.To.N, run.Owner, run.Agent, run.Name)
	if err != nil || len(run.Gone) == 0 && !run.Whole {
		return err
	}
	run.Trim = true
	return q.SelectContext(ctx, &run.Segments, `SELECT id FROM segments WHERE run_id = ?`, id)
}
