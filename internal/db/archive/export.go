package archive

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"slices"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db/blob"
	"github.com/ckptsidecar/ckptsidecar/internal/db/ledger"
	"github.com/ckptsidecar/ckptsidecar/internal/db/sqlite"
	"github.com/jmoiron/sqlx"
)

// exportVersion is the version of the format.
const exportVersion = 1

// Export writes everything of an agent.
func (s *Archive) Export(ctx context.Context, sc ckpt.Scope, name string, w io.Writer) error {
	return s.ExportAgents(ctx, sc, ckpt.ExportRequest{Agents: []string{name}}, w)
}

// ExportAgents writes everything of some agents, or one run of an agent.
func (s *Archive) ExportAgents(ctx context.Context, sc ckpt.Scope, r ckpt.ExportRequest, w io.Writer) error {
	agents, err := s.exported(ctx, sc, r)
	if err != nil {
		return err
	}
	x := newExporter(w)
	x.line(&exportLine{Type: lineBegin, Version: exportVersion})
	for _, agent := range agents {
		e := ledger.Entry(sc, "export", agent.Name)
		e.Run = r.Run
		err := s.Submit(&ledger.Op{Owner: sc.Caller.Owner, Claim: sqlite.GoesOn, Do: func(tx *ledger.Tx) error { return tx.Audit(e) }})
		if err == nil {
			err = (&exporting{store: s, agent: agent, run: r.Run, bare: r.NoFiles, x: x, written: map[string]mark{}}).all(ctx)
		}
		if err != nil {
			return err
		}
	}
	return x.end()
}

// exported finds the agents of a request, each once, and the run that it names.
func (s *Archive) exported(ctx context.Context, sc ckpt.Scope, r ckpt.ExportRequest) ([]*ledger.AgentRow, error) {
	if err := r.Check(); err != nil {
		return nil, err
	}
	names := slices.Compact(slices.Sorted(slices.Values(r.Agents)))
	if len(names) == 0 {
		err := s.RO.SelectContext(ctx, &names, `SELECT name FROM agents WHERE owner = ? ORDER BY name`, sc.Whose())
		if err != nil {
			return nil, sqlite.ReadError(err)
		}
		if len(names) == 0 {
			return nil, ckpt.Errorf(ckpt.CodeNotFound, "%s has no agents: there is nothing to export", sc.Whose())
		}
	}
	var agents []*ledger.AgentRow
	for _, name := range names {
		agent, err := s.FindAgent(ctx, sc, name)
		if err != nil {
			return nil, err
		}
		agents = append(agents, agent)
	}
	if r.Run != "" {
		if _, err := s.FindRun(ctx, sc, ckpt.RunRef{Agent: r.Agents[0], Run: r.Run}); err != nil {
			return nil, err
		}
	}
	return agents, nil
}

// exportAtOnce is how many checkpoints are read on one snapshot.
const exportAtOnce = 32

// orderedAtOnce is how many checkpoints are sorted at once, with 16 bytes of memory each.
const orderedAtOnce = 1 << 18

// exportRow is a checkpoint to export.
type exportRow struct {
	ledger.ReadRow
	StateOf *int64 `db:"state_of"`
	Key     string `db:"life_key"`
}

func (e *exporting) all(ctx context.Context) error {
	var settings struct {
		CreatedAt ckpt.Time `db:"created_at"`
		PolicyAt  ckpt.Time `db:"policy_at"`
		Policy    string    `db:"policy"`
	}
	err := e.store.RO.GetContext(ctx, &settings, `SELECT created_at, policy_at, policy FROM agents WHERE id = ?`, e.agent.ID)
	if err != nil {
		return sqlite.ReadError(err)
	}
	e.x.line(&exportLine{Type: lineAgent, Agent: e.agent.Name, Owner: e.agent.Owner, CreatedAt: &settings.CreatedAt, PolicyAt: &settings.PolicyAt,
		Policy: json.RawMessage(settings.Policy)})
	for more := true; more && e.x.err == nil; {
		err := e.reading(ctx, func(q *sqlx.Tx) error {
			n, err := e.states(ctx, q, exportAtOnce)
			more = n > 0
			return err
		})
		if err != nil {
			return err
		}
	}
	return e.rest(ctx)
}

// reading runs f on one snapshot, and afterwards reports the damage that f found.
func (e *exporting) reading(ctx context.Context, f func(q *sqlx.Tx) error) error {
	err := e.store.Reading(ctx, f)
	for _, damage := range e.x.damage {
		e.store.ReportDamage(damage)
	}
	e.x.damage = nil
	return err
}

// rest writes everything except the states, as of one moment.
func (e *exporting) rest(ctx context.Context) error {
	to := &aside{store: e.store}
	defer to.drop()
	back := e.x.divert(to)
	err := e.reading(ctx, func(q *sqlx.Tx) error {
		for {
			if n, err := e.states(ctx, q, exportAtOnce); err != nil || n == 0 || e.x.err != nil {
				if err == nil {
					err = e.marks(ctx, q)
				}
				if err == nil {
					err = e.runs(ctx, q)
				}
				if err == nil && !e.bare {
					err = e.files(ctx, q)
				}
				return err
			}
		}
	})
	if err := errors.Join(err, back()); err != nil {
		return err
	}
	from, err := to.reader()
	if err != nil {
		return err
	}
	return e.x.copy(from)
}

// states writes some checkpoints with their states, and returns how many.
func (e *exporting) states(ctx context.Context, q *sqlx.Tx, most int) (int, error) {
	if len(e.order) == 0 {
		err := q.SelectContext(ctx, &e.order, `SELECT c.slot, c.n FROM runs r CROSS JOIN checkpoints c ON c.run_id = r.id
			WHERE r.agent_id = ?1 AND (?2 = '' OR r.name = ?2 OR r.base = ?2) AND c.n > ?3 ORDER BY c.n LIMIT 0 + ?4`, e.agent.ID, e.run, e.last, orderedAtOnce)
		if err != nil || len(e.order) == 0 {
			return 0, err
		}
	}
	page := e.order[:min(most, len(e.order))]
	e.order = e.order[len(page):]
	e.last = page[len(page)-1].N
	slots := make([]int64, len(page))
	for i := range page {
		slots[i] = page[i].Slot
	}
	list, err := json.Marshal(slots)
	if err != nil {
		return 0, err
	}
	var rows []exportRow
	err = q.SelectContext(ctx, &rows, `SELECT `+ledger.ReadColumns+`, c.state_of, `+lifeKey+` AS life_key`+ledger.StateColumns+ledger.ReadTables+
		`WHERE c.slot IN (SELECT value FROM json_each(?1)) AND c.n <= ?2 ORDER BY c.n`, string(list), e.last) // later ones follow
	if err != nil {
		return 0, err
	}
	for i := range rows {
		row := &rows[i]
		row.Run = row.Key
		c, err := ledger.WithState(ctx, q, &row.ReadRow, true)
		if err == nil {
			err = e.checkpoint(c, row)
		}
		if ckpt.CodeOf(err) == ckpt.CodeCorrupt {
			e.store.Log.Warn("a damaged checkpoint was left out of an export", "checkpoint", row.ID, "error", err)
			e.x.damage = append(e.x.damage, err)
			e.x.damaged(row.Run, lineCheckpoint, row.ID, row.Seq, err)
			continue
		}
		if err != nil {
			return 0, err
		}
	}
	return len(page), nil
}

func (e *exporting) checkpoint(c *ckpt.Checkpoint, row *exportRow) error {
	labels, err := c.Labels.MarshalJSON()
	if err != nil {
		return err
	}
	values := []any{c.ID, c.Seq, string(c.Kind), orNull(c.Parent), c.CreatedAt.String(), c.Size, c.SHA256,
		c.ContentType, string(labels), row.Metadata, nil,
		orNull(c.Step), orNull(c.Operation), bit(c.Pinned), bit(c.Suspect), nil}
	if row.Program != nil {
		values[10] = *row.Program
	}
	if row.StateOf != nil {
		values[15] = *row.StateOf
	}
	text, err := checkpoints.appendRow(nil, values)
	if err != nil {
		return ckpt.Wrap(ckpt.CodeCorrupt, &blob.DamageError{What: err.Error(), ID: c.ID}, "checkpoint %s is damaged: %v", c.ID, err)
	}
	e.written[c.ID] = mark{c.Run, string(labels), c.Pinned, c.Suspect}
	e.x.checkpoint(c, text)
	return nil
}

func orNull(r ckpt.Ref) any {
	if r == "" {
		return nil
	}
	return string(r)
}

func bit(is bool) int64 {
	if is {
		return 1
	}
	return 0
}

// marks writes what has changed about the checkpoints since they were written.
func (e *exporting) marks(ctx context.Context, q *sqlx.Tx) error {
	var rows []struct {
		ID      string                      `db:"id"`
		Labels  ledger.Lenient[ckpt.Labels] `db:"labels"`
		Pinned  bool                        `db:"pinned"`
		Suspect bool                        `db:"suspect"`
	}
	err := q.SelectContext(ctx, &rows, `SELECT id, labels, pinned, suspect FROM checkpoints WHERE run_id IN (SELECT id FROM runs
		WHERE agent_id = ?1 AND (?2 = '' OR name = ?2 OR base = ?2)) ORDER BY n`,
		e.agent.ID, e.run)
	if err != nil {
		return err
	}
	for i := range rows {
		row := &rows[i]
		was, there := e.written[row.ID]
		delete(e.written, row.ID)
		labels, err := row.Labels.Value.MarshalJSON()
		if now := (mark{was.run, string(labels), row.Pinned, row.Suspect}); err != nil || !there || now == was {
			continue
		}
		e.x.row(marks, was.run, []any{row.ID, nil, string(labels), bit(row.Pinned), bit(row.Suspect)})
	}
	gone := make([]string, 0, len(e.written))
	for id := range e.written {
		gone = append(gone, id)
	}
	slices.Sort(gone)
	for _, id := range gone {
		e.x.row(marks, e.written[id].run, []any{id, int64(1), nil, nil, nil})
	}
	e.written = nil
	return nil
}

// runs writes each run with the rows that belong to it.
func (e *exporting) runs(ctx context.Context, q *sqlx.Tx) error {
	var ids []int64
	err := q.SelectContext(ctx, &ids, `SELECT id FROM runs WHERE agent_id = ?1 AND (?2 = '' OR name = ?2 OR base = ?2) ORDER BY id`, e.agent.ID, e.run)
	for _, id := range ids {
		if err == nil {
			err = e.oneRun(ctx, q, id)
		}
	}
	return err
}

func (e *exporting) oneRun(ctx context.Context, q *sqlx.Tx, id int64) error {
	var run ledger.RunRow
	if err := q.GetContext(ctx, &run, `SELECT `+ledger.RunColumns+` FROM runs WHERE id = ?`, id); err != nil {
		return err
	}
	var key string
	if err := q.GetContext(ctx, &key, `SELECT `+lifeKey+` FROM runs r WHERE id = ?`, id); err != nil {
		return err
	}
	err := eachRow(ctx, q, runs.query, []any{id}, func(values []any) error {
		row, err := runs.appendRow(nil, values)
		if err != nil {
			return ckpt.Errorf(ckpt.CodeCorrupt, "run %s is damaged: %v; run ckptsidecar verify", run.Name, err)
		}
		var alive []byte
		if e.store.OwnerAlive(&run) {
			alive = []byte(`,"owner_alive":true`)
		}
		e.x.rowLine(lineRun, key, row, alive)
		return nil
	})
	for _, t := range children {
		if err == nil {
			err = eachRow(ctx, q, t.query, []any{id}, func(values []any) error {
				e.x.row(t, key, values)
				return e.x.err
			})
		}
	}
	return err
}

// eachRow calls f with each row of a query, which f must not keep.
func eachRow(ctx context.Context, q *sqlx.Tx, query string, args []any, f func([]any) error) error {
	rows, err := q.QueryxContext(ctx, query, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		values, err := rows.SliceScan()
		if err == nil {
			err = f(values)
		}
		if err != nil {
			return err
		}
	}
	return rows.Err()
}
