package ledger

import (
	"context"
	"encoding/json"
	"errors"
	"strings"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db/blob"
	"github.com/jmoiron/sqlx"
)

// ReadRow is a checkpoint as reads return it from the database.
type ReadRow struct {
	N           int64                `db:"n"`
	RunID       int64                `db:"run_id"`
	ID          string               `db:"id"`
	Seq         int64                `db:"seq"`
	Kind        ckpt.Kind            `db:"kind"`
	Parent      ckpt.Ref             `db:"parent"`
	CreatedAt   Lenient[ckpt.Time]   `db:"created_at"`
	Size        int64                `db:"size"`
	StoredSize  int64                `db:"stored_size"`
	SHA256      string               `db:"sha256"`
	ContentType string               `db:"content_type"`
	Labels      Lenient[ckpt.Labels] `db:"labels"`
	Metadata    string               `db:"metadata"`
	Step        ckpt.Ref             `db:"step"`
	Operation   ckpt.Ref             `db:"operation"`
	Pinned      bool                 `db:"pinned"`
	Suspect     bool                 `db:"suspect"`
	Program     *string              `db:"program"`
	Owner       string               `db:"owner"`
	Agent       string               `db:"agent"`
	Run         string               `db:"run"`
	Body        []byte               `db:"body"`
	Pieces      *string              `db:"pieces"`
	Trees       string               `db:"trees"`
}

const (
	ReadColumns = `c.n, c.run_id, c.id, c.seq, c.kind, c.parent, c.created_at, c.size, c.stored_size, c.sha256, c.content_type,
		c.labels, c.metadata, c.step, c.operation, c.pinned, c.suspect, c.program, a.owner, a.name AS agent, r.name AS run`
	StateColumns = `, c.body, c.pieces`
	// treesColumn names the trees of files of the checkpoint.
	treesColumn = `, coalesce((SELECT group_concat(x.tree, ' ') FROM (SELECT t.sha256 AS tree FROM checkpoint_trees x JOIN trees t ON t.id = x.tree_id
		WHERE x.n = c.n AND x.run_id = c.run_id ORDER BY x.place) x), '') AS trees`
	ReadTables = ` FROM checkpoints c JOIN runs r ON r.id = c.run_id JOIN agents a ON a.id = r.agent_id `
	// OwnedTables join the checkpoint with the id ? of an owner. The owner must follow in the
	// query. The order of the joins is fixed, because there is an index by id.
	OwnedTables = ownedTables + `? AND a.owner = `
	ownedTables = ` FROM checkpoints c CROSS JOIN runs r ON r.id = c.run_id CROSS JOIN agents a ON a.id = r.agent_id WHERE c.id = `

	// SlotOfFork selects the row of the checkpoint that a run was forked from: the one with the id
	// ?4 of the owner of the run ?1.
	SlotOfFork = `SELECT c.slot` + ownedTables + `?4 AND a.owner = (SELECT o.owner FROM runs m JOIN agents o ON o.id = m.agent_id WHERE m.id = ?1)`
)

// Checkpoint converts the row to the form for callers. It never returns a damaged checkpoint.
func (r *ReadRow) Checkpoint() (*ckpt.Checkpoint, error) {
	c := &ckpt.Checkpoint{
		ID: r.ID, Agent: r.Agent, Owner: r.Owner, Run: r.Run, Seq: r.Seq, Kind: r.Kind, Parent: r.Parent, CreatedAt: r.CreatedAt.Value,
		Size: r.Size, StoredSize: r.StoredSize, SHA256: r.SHA256, ContentType: r.ContentType, Labels: r.Labels.Value,
		Metadata: json.RawMessage(r.Metadata), Step: r.Step, Operation: r.Operation, Pinned: r.Pinned, Suspect: r.Suspect,
	}
	if r.Trees != "" {
		c.Trees = strings.Fields(r.Trees)
	}
	if r.Program != nil {
		c.Program = &ckpt.Program{}
		if err := json.Unmarshal([]byte(*r.Program), c.Program); err != nil {
			return nil, r.damaged("program", err)
		}
	}
	for column, damage := range map[string]error{
		"created_at": r.CreatedAt.damage, "labels": r.Labels.damage, "metadata": metadataDamage(r.Metadata),
	} {
		if damage != nil {
			return nil, r.damaged(column, damage)
		}
	}
	return c, nil
}

func (r *ReadRow) damaged(column string, err error) error {
	return ckpt.Wrap(ckpt.CodeCorrupt, errors.Join(err, &blob.DamageError{What: "its " + column + " cannot be read", ID: r.ID, N: r.N}),
		"checkpoint %s is damaged in its %s and is not served; run ckptsidecar verify", r.ID, column)
}

// state returns the columns from which the row's state is read back.
func (r *ReadRow) state() *blob.StateRow {
	return &blob.StateRow{N: r.N, ID: r.ID, Size: r.Size, SHA256: r.SHA256, Body: r.Body, Pieces: r.Pieces}
}

// WithState converts a row, with its state if state is set.
func WithState(ctx context.Context, q sqlx.QueryerContext, r *ReadRow, state bool) (*ckpt.Checkpoint, error) {
	c, err := r.Checkpoint()
	if err != nil || !state {
		return c, err
	}
	c.State, err = blob.Decode(ctx, q, r.state())
	return c, err
}

// Checkpoint reads a checkpoint by its id. To anyone but an administrator, another owner's
// checkpoint does not exist.
func (s *Core) Checkpoint(ctx context.Context, sc ckpt.Scope, id string, state bool) (*ckpt.Checkpoint, error) {
	if err := ckpt.CheckID(id); err != nil {
		return nil, err
	}
	var c *ckpt.Checkpoint
	err := s.Reading(ctx, func(q *sqlx.Tx) error {
		row, err := readOne(ctx, q, WhoseByID(sc), sc.Caller.Owner, id, state)
		if err != nil {
			return err
		}
		c, err = WithState(ctx, q, row, state)
		return err
	})
	if err != nil {
		return nil, err
	}
	if c.Owner != sc.Caller.Owner {
		s.AuditReadOf(sc, "read", c.Owner, c.Agent, id)
	}
	return c, nil
}

// readOne reads the checkpoint of an id that an owner has, or any owner if owner is "". In that
// case the checkpoint of first takes precedence.
func readOne(ctx context.Context, q sqlx.QueryerContext, owner, first, id string, state bool) (*ReadRow, error) {
	columns := ReadColumns + treesColumn
	if state {
		columns += StateColumns
	}
	if owner != "" {
		var row ReadRow
		err := sqlx.GetContext(ctx, q, &row, `SELECT `+columns+OwnedTables+`?`, id, owner)
		if IsNoRows(err) {
			return nil, NoCheckpoint(id)
		}
		return &row, err
	}
	var rows []ReadRow
	err := sqlx.SelectContext(ctx, q, &rows, `SELECT `+columns+ReadTables+`WHERE c.id = ?1 ORDER BY a.owner <> ?2, a.owner LIMIT 2`, id, first)
	if err != nil {
		return nil, err
	}
	return OneOf(rows, func(r *ReadRow) string { return r.Owner }, first, id)
}

// OneOf picks the row of an id for an administrator who named no owner: their own, or the only one.
func OneOf[Row any](rows []Row, owner func(*Row) string, first, id string) (*Row, error) {
	switch {
	case len(rows) == 0:
		return nil, NoCheckpoint(id)
	case len(rows) > 1 && owner(&rows[0]) != first:
		return nil, ckpt.Errorf(ckpt.CodeConflict, "%s and %s both have a checkpoint %s: name the owner", owner(&rows[0]), owner(&rows[1]), id)
	}
	return &rows[0], nil
}

// WhoseByID is the owner whose things a scope reaches by their ids, "" for all owners.
func WhoseByID(sc ckpt.Scope) string {
	switch {
	case sc.Target != "" && sc.Target != ckpt.AllOwners:
		return sc.Target
	case sc.Admin:
		return ""
	}
	return sc.Caller.Owner
}

// MayRead says whether a scope reaches an owner's things by their ids.
func MayRead(sc ckpt.Scope, owner string) bool {
	if sc.Target != "" && sc.Target != ckpt.AllOwners {
		return sc.Target == owner
	}
	return owner == sc.Caller.Owner || sc.Admin
}

func NoCheckpoint(id string) error {
	return ckpt.Errorf(ckpt.CodeNotFound, "there is no checkpoint %s: it was never saved, was removed by retention, or belongs to another owner", id)
}

// Base is the state of a checkpoint of an agent and its hash, as the base of a change. It may be
// the state in memory: the caller must not write to it, and must not read it after it was released.
func (s *Core) Base(ctx context.Context, sc ckpt.Scope, agent, id string) (state []byte, sha256 string, release func(), err error) {
	if b := s.States.Find(sc.Whose(), agent, id); b != nil {
		return b.State, b.SHA256, func() { s.States.Release(b) }, nil
	}
	err = s.Reading(ctx, func(q *sqlx.Tx) error {
		row, err := readOne(ctx, q, sc.Whose(), "", id, true)
		if err != nil {
			return err
		}
		if row.Agent != agent {
			return NoCheckpoint(id)
		}
		sha256 = row.SHA256
		state, err = blob.Decode(ctx, q, row.state())
		return err
	})
	return state, sha256, func() {}, err
}

// Memory returns a buffer of this many bytes for a state that is to be saved, as SaveRequest.State
// with Lent set. Its contents are undefined.
func (s *Core) Memory(size int) []byte { return s.States.Memory(size) }

// Checkpoints lists an agent's checkpoints, newest first.
func (s *Core) Checkpoints(ctx context.Context, sc ckpt.Scope, f ckpt.CheckpointFilter) (*ckpt.CheckpointPage, error) {
	limit, err := PageSizeOf(f.Limit)
	if err != nil {
		return nil, err
	}
	before, err := s.Numbers(sc).ReadCursor(f.Before)
	if err != nil {
		return nil, err
	}
	agent, err := s.FindAgent(ctx, sc, f.Agent)
	if err != nil {
		return nil, err
	}
	s.AuditRead(sc, "list", f.Agent, "")
	page := &ckpt.CheckpointPage{Checkpoints: []ckpt.Checkpoint{}}
	var damage []error
	err = s.Reading(ctx, func(q *sqlx.Tx) error {
		rows, err := listRows(ctx, q, agent.ID, f, before, limit+1, false)
		if err != nil {
			return err
		}
		if len(rows) > limit {
			rows = rows[:limit]
			page.Next = s.Numbers(sc).WriteCursor(rows[limit-1].N)
		}
		for i := range rows {
			c, err := rows[i].Checkpoint()
			if err != nil { // the rest is still listed; verify names this one
				damage = append(damage, err)
				continue
			}
			page.Checkpoints = append(page.Checkpoints, *c)
		}
		return nil
	})
	for _, err := range damage {
		s.ReportDamage(err)
	}
	return page, err
}

// Latest is the newest checkpoint that passes the filter.
func (s *Core) Latest(ctx context.Context, sc ckpt.Scope, f ckpt.CheckpointFilter, state bool) (*ckpt.Checkpoint, error) {
	agent, err := s.FindAgent(ctx, sc, f.Agent)
	if err != nil {
		return nil, err
	}
	s.AuditRead(sc, "read", f.Agent, "")
	var c *ckpt.Checkpoint
	err = s.Reading(ctx, func(q *sqlx.Tx) error {
		rows, err := s.newestRows(ctx, q, agent.ID, f, state)
		if err != nil {
			return err
		}
		if len(rows) == 0 {
			return ckpt.Errorf(ckpt.CodeNotFound, "agent %s has no matching checkpoint", f.Agent)
		}
		if rows, err = notGivenUp(ctx, q, agent.ID, f, rows, state); err != nil {
			return err
		}
		c, err = WithState(ctx, q, &rows[0], state)
		return err
	})
	return c, err
}

// notGivenUp is the newest checkpoint of a run up to the one that the run goes on from: if an older
// one was restored, the run does not go on from later ones. If no checkpoint up to there passes the
// filter, the newest of all is used.
func notGivenUp(ctx context.Context, q sqlx.QueryerContext, agentID int64, f ckpt.CheckpointFilter, newest []ReadRow, state bool) ([]ReadRow, error) {
	var head int64
	err := sqlx.GetContext(ctx, q, &head, `SELECT c.n FROM runs r JOIN checkpoints c ON c.id = r.head AND +c.run_id = r.id
		WHERE r.id = ?`, newest[0].RunID)
	if IsNoRows(err) || err == nil && head >= newest[0].N {
		return newest, nil
	}
	if err != nil {
		return nil, err
	}
	f.Run = newest[0].Run
	rows, err := listRows(ctx, q, agentID, f, head+1, 1, state)
	if err != nil || len(rows) == 0 {
		return newest, err
	}
	return rows, nil
}

// listRows reads the newest rows before a position.
func listRows(ctx context.Context, q sqlx.QueryerContext, agentID int64, f ckpt.CheckpointFilter, before int64,
	limit int, state bool) ([]ReadRow, error) {
	if err := CheckFilter(f); err != nil {
		return nil, err
	}
	kinds := ckpt.Kinds
	if f.Kind != "" {
		kinds = []ckpt.Kind{f.Kind}
	}
	columns := ReadColumns + treesColumn
	if state {
		columns += StateColumns
	}
	l, err := listFrom(ctx, q, agentID, before)
	if err != nil {
		return nil, err
	}
	if f.Run != "" {
		l.OfRun(columns, agentID, kinds, f, before, limit)
	} else {
		l.OfAllRuns(columns, agentID, kinds, f, before, limit)
	}
	var rows []ReadRow
	return rows, sqlx.SelectContext(ctx, q, &rows, l.Text.String(), l.Args...)
}

// OfRun selects the newest checkpoints of each kind of one run.
func (l *ListQuery) OfRun(columns string, agentID int64, kinds []ckpt.Kind, f ckpt.CheckpointFilter, before int64, limit int) {
	l.add(`SELECT ` + columns + ` FROM runs r JOIN agents a ON a.id = r.agent_id JOIN checkpoints c ON c.slot IN (`)
	for i, kind := range kinds {
		if i > 0 {
			l.add(` UNION ALL `)
		}
		l.add(`SELECT slot FROM (`)
		l.newest(`k.slot`, `r.id`, ` AND k.kind = ?`, f, before, limit, string(kind))
		l.add(`)`)
	}
	l.add(`) WHERE r.agent_id = ? AND r.name = ? ORDER BY c.n DESC LIMIT 0 + ?`, agentID, f.Run, limit)
}

// OfAllRuns works in two steps, so that saves need not maintain an index over all of an agent's
// checkpoints. The first step takes the newest checkpoint of each run and kind, from an index
// alone. Sorted by these, the first limit pairs of run and kind contain all rows of the page. The
// second step reads those, down to the oldest checkpoint of the first step.
func (l *ListQuery) OfAllRuns(columns string, agentID int64, kinds []ckpt.Kind, f ckpt.CheckpointFilter, before int64, limit int) {
	l.add(`WITH kinds (kind) AS (VALUES (?)`, string(kinds[0]))
	for _, kind := range kinds[1:] {
		l.add(`, (?)`, string(kind))
	}
	l.add(`), heads AS MATERIALIZED (SELECT r.id AS run_id, kinds.kind, (`)
	l.newest(`k.n`, `r.id`, ` AND k.kind = kinds.kind`, f, before, 1)
	l.add(`) AS n FROM runs r, kinds WHERE r.agent_id = ? ORDER BY n DESC LIMIT 0 + ?)
		SELECT `+columns+` FROM heads h JOIN runs r ON r.id = h.run_id JOIN agents a ON a.id = r.agent_id
		JOIN checkpoints c ON c.slot IN (SELECT slot FROM (`, agentID, limit)
	l.newest(`k.slot, k.n`, `h.run_id`, ` AND k.kind = h.kind`, f, before, limit)
	l.add(`) WHERE n >= (SELECT CASE count(n) WHEN ? THEN min(n) ELSE 0 END FROM heads)) ORDER BY c.n DESC LIMIT 0 + ?`, limit, limit)
}

// ListQuery is a composed statement, with its arguments in order.
type ListQuery struct {
	Text strings.Builder
	Args []any
	from struct{ RunID, Seq int64 } // the checkpoint where the page begins, so that its run is not scanned down to it; 0 if unknown
}

// listFrom is a statement whose page begins before a row of the audit log.
func listFrom(ctx context.Context, q sqlx.QueryerContext, agentID, before int64) (*ListQuery, error) {
	l := &ListQuery{}
	if before == 1<<62 {
		return l, nil
	}
	err := q.QueryRowxContext(ctx, `SELECT r.id, x.seq FROM acts x JOIN places p ON p.id = x.place JOIN agents a ON a.owner = p.owner
		AND a.name = p.agent
		JOIN runs r ON r.agent_id = a.id AND (r.name = p.run OR r.name > p.run || '~' AND r.name < p.run || char(127)) AND r.life = p.life
		WHERE x.n = ? AND x.seq IS NOT NULL AND a.id = ?`, before, agentID).Scan(&l.from.RunID, &l.from.Seq)
	if IsNoRows(err) { // it is archived, or of an agent that had another owner: the whole run is scanned
		err = nil
	}
	return l, err
}

func (l *ListQuery) add(text string, args ...any) {
	l.Text.WriteString(text)
	l.Args = append(l.Args, args...)
}

// newest adds a selection of columns of the newest checkpoints of a run and a kind that pass a
// filter.
func (l *ListQuery) newest(columns, run, kind string, f ckpt.CheckpointFilter, before int64, limit int, args ...any) {
	l.add(`SELECT `+columns+` FROM checkpoints k WHERE k.run_id = `+run+kind+` AND k.n < ?`, append(args, before)...)
	if l.from.RunID != 0 {
		l.add(` AND k.seq < CASE `+run+` WHEN ? THEN ? ELSE 1 << 62 END`, l.from.RunID, l.from.Seq)
	}
	if f.Suspect != nil {
		l.add(` AND k.suspect = ?`, *f.Suspect)
	}
	if f.Clean {
		l.add(` AND k.suspect = 0 AND k.seq <= ` + SoundUpTo("k"))
	}
	for key, value := range f.Labels { // the keys were checked: they need no quoting inside a JSON path
		l.add(` AND json_extract(k.labels, ?) = ?`, `$."`+key+`"`, value)
	}
	l.add(` ORDER BY k.seq DESC LIMIT 0 + ?`, limit)
}

func CheckFilter(f ckpt.CheckpointFilter) error {
	if f.Kind != "" {
		if err := ckpt.CheckKind(f.Kind); err != nil {
			return err
		}
	}
	if f.Run != "" {
		if err := ckpt.CheckLife(f.Run); err != nil {
			return err
		}
	}
	return ckpt.CheckLabels(f.Labels)
}

// CheckpointOf chooses the checkpoint, checks that it belongs to this agent and this run, and reads
// its state.
func (tx *Tx) CheckpointOf(agent *AgentRow, r ckpt.RestoreRequest) (*ckpt.Checkpoint, error) {
	var row *ReadRow
	var err error
	if r.Checkpoint != "" {
		row, err = tx.chosen(agent, r)
	} else {
		row, err = tx.newest(agent, r)
	}
	if err != nil {
		return nil, err
	}
	c, err := WithState(tx.Ctx, tx.Conn, row, true)
	if ckpt.CodeOf(err) == ckpt.CodeCorrupt {
		tx.damage = append(tx.damage, err)
	}
	return c, err
}

func (tx *Tx) chosen(agent *AgentRow, r ckpt.RestoreRequest) (*ReadRow, error) {
	row, err := readOne(tx.Ctx, tx.Conn, agent.Owner, "", r.Checkpoint, true)
	if err != nil {
		return nil, err
	}
	switch {
	case row.Agent != agent.Name:
		return nil, ckpt.Errorf(ckpt.CodeConflict, "checkpoint %s belongs to agent %s, not to %s: nothing was restored",
			r.Checkpoint, row.Agent, agent.Name)
	case r.Run != "" && row.Run != r.Run:
		return nil, ckpt.Errorf(ckpt.CodeConflict, "checkpoint %s belongs to run %s, not to %s: nothing was restored", r.Checkpoint, row.Run, r.Run)
	}
	return row, nil
}

// SoundUpTo is the newest checkpoint of a run that no open finding doubts, in SQL. It has the same
// conditions as ckpt.Finding.Doubts. of is a table with a run_id.
func SoundUpTo(of string) string {
	return `coalesce((SELECT min(f.since_seq) FROM findings f INDEXED BY findings_open WHERE f.run_id = ` + of + `.run_id
		AND f.closed IS NULL AND f.rule <> 'secret' AND (f.severity = 'critical' OR f.severity = 'warn' AND f.about = 'state')), 1 << 62)`
}

// newest is the newest checkpoint that passes the request. If no run is named, it is of the main
// run, or of the newest run if the agent has no main run.
func (tx *Tx) newest(agent *AgentRow, r ckpt.RestoreRequest) (*ReadRow, error) {
	f := ckpt.CheckpointFilter{Agent: agent.Name, Run: r.Run, Kind: r.Kind}
	if r.Clean {
		f.Clean = true
	}
	runs := []string{r.Run}
	if r.Run == "" {
		runs = []string{ckpt.MainRun, ""}
	}
	for _, f.Run = range runs {
		rows, err := tx.Store.newestRows(tx.Ctx, tx.Conn, agent.ID, f, true)
		if err != nil {
			return nil, err
		}
		if len(rows) > 0 {
			return &rows[0], nil
		}
	}
	return nil, ckpt.Errorf(ckpt.CodeNotFound,
		"agent %s has no matching checkpoint: list its checkpoints with ckptsidecar list %s", agent.Name, agent.Name)
}
