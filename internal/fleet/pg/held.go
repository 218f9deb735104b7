package pg

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/ckptsidecar/ckptsidecar/internal/fleet"
)

// The statements that read single rows of runs for a caller who may see them. The
// conditions on $1 to $3 are the same as in listRuns: everything, or what belongs to a
// principal.
const (
	maySee = `($1 = 1 OR r.principal = $2) AND ($3 = '' OR r.owner = $3) AND r.status <> ''`

	heldPrompts = `SELECT r.uid, r.host, coalesce(h.name, ''), r.owner, coalesce(r.principal, ''), r.agent, r.run, r.status,
		x.kind, x.key, x.doc, coalesce(x.key_id, '')
		FROM fleet_rows x JOIN fleet_runs r ON r.uid = x.run_uid LEFT JOIN fleet_hosts h ON h.db = r.host
		WHERE x.kind = 'prompt' AND ` + maySee + ` AND ($4 = '' OR h.name = $4 OR r.host = $4) AND ($5 = '' OR r.principal = $5)
		AND ($6 = '' OR r.agent = $6) AND ($7 = '' OR x.key < $7) ORDER BY x.key DESC LIMIT $8`

	// A checkpoint of a run that was claimed can exist twice. Then the one counts that the
	// claimant has shipped under its own term.
	heldCheckpoint = `SELECT r.uid, r.host, coalesce(h.name, ''), r.owner, coalesce(r.principal, ''), r.agent, r.run, r.status,
		c.db, c.n, c.id, c.seq, c.kind, c.suspect, c.sha, c.size, c.pieces, c.body, c.doc, coalesce(c.key_id, '')
		FROM fleet_checkpoints c JOIN fleet_runs r ON r.uid = c.run_uid LEFT JOIN fleet_hosts h ON h.db = r.host
		WHERE c.id = $4 AND ` + maySee + ` ORDER BY c.term DESC, c.n DESC LIMIT 1`
)

// sees returns the arguments of maySee.
func sees(asker *fleet.Asker, owner string) []any {
	all := bit(asker == nil)
	if asker == nil {
		asker = &fleet.Asker{}
	}
	return []any{all, asker.Principal, owner}
}

// Prompts lists prompts of all hosts as they are stored, the newest first. Only the
// document of a prompt says whether it is open. Before is the id of a prompt.
func (e *Engine) Prompts(ctx context.Context, q fleet.RunsQuery) (all []fleet.HeldRow, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	rows, err := e.conn.Query(ctx, heldPrompts, append(sees(q.For, q.Owner), q.Host, q.Principal, q.Agent, q.Before, q.Limit)...)
	if err != nil {
		return nil, told(err)
	}
	var h fleet.HeldRow
	_, err = pgx.ForEachRow(rows, []any{&h.UID, &h.DB, &h.Host, &h.Owner, &h.Principal, &h.Agent, &h.Run, &h.Status,
		&h.Kind, &h.Key, &h.Doc, &h.KeyID}, func() error {
		all = append(all, h)
		return nil
	})
	return all, told(err)
}

// Checkpoint reads the checkpoint with an id, and the parts of its state if state is
// set. It returns nil if the engine has none that the asker may see. If owner is "", it
// looks among the checkpoints of all owners whom the asker may see.
func (e *Engine) Checkpoint(ctx context.Context, id string, asker *fleet.Asker, owner string, state bool) (*fleet.HeldCheckpoint, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	rows, err := e.conn.Query(ctx, heldCheckpoint, append(sees(asker, owner), id)...)
	if err != nil {
		return nil, told(err)
	}
	var h *fleet.HeldCheckpoint
	var r fleet.RunShown
	var c fleet.Checkpoint
	var db string
	var suspect int64
	_, err = pgx.ForEachRow(rows, []any{&r.UID, &r.DB, &r.Host, &r.Owner, &r.Principal, &r.Agent, &r.Run, &r.Status,
		&db, &c.N, &c.ID, &c.Seq, &c.Kind, &suspect, &c.SHA256, &c.Size, &c.Pieces, &c.Body, &c.Doc, &c.KeyID}, func() error {
		c.Suspect = suspect == 1
		h = &fleet.HeldCheckpoint{RunShown: r, LostRun: fleet.LostRun{UID: r.UID, DB: db, Checkpoints: []fleet.Checkpoint{c}}}
		return nil
	})
	if err != nil || h == nil || !state || c.Pieces == nil {
		return h, told(err)
	}
	return h, e.fillSegments(ctx, &h.LostRun)
}
