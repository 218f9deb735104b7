package langgraph

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db/blob"
	"github.com/ckptsidecar/ckptsidecar/internal/db/ledger"
	"github.com/jmoiron/sqlx"
)

// The bounds of a page of LangGraph's checkpoints, which come with their values.
const (
	graphPageMost  = 20
	graphPageBytes = 4 << 20
	graphLookAhead = 200 // rows whose metadata is read at once
)

// graphRow is one of LangGraph's checkpoints without its state.
type graphRow struct {
	blob.StateRow
	Slot     int64    `db:"slot"`
	Graph    string   `db:"graph_id"`
	Parent   ckpt.Ref `db:"graph_parent"`
	RunID    int64    `db:"run_id"`
	Metadata string   `db:"metadata"`
	Owner    string   `db:"owner"`
	Agent    string   `db:"agent"`
}

const graphColumns = `c.slot, c.n, c.id, c.size, c.sha256, c.body, c.pieces, c.metadata, g.id AS graph_id,
	g.parent AS graph_parent, g.run_id, a.owner, a.name AS agent`

// GraphTuples lists checkpoints of LangGraph with their values and writes, newest first. If there is none, that is no
// error.
func (s *Threads) GraphTuples(ctx context.Context, sc ckpt.Scope, q ckpt.GraphQuery) (*ckpt.GraphPage, error) {
	if err := q.Check(); err != nil {
		return nil, err
	}
	page := &ckpt.GraphPage{}
	agent, err := s.FindAgent(ctx, sc, q.Agent)
	if ckpt.CodeOf(err) == ckpt.CodeNotFound {
		return page, nil
	}
	if err != nil {
		return nil, err
	}
	s.AuditRead(sc, "read", q.Agent, "")
	after, err := s.readGraphCursor(sc, q.Cursor)
	if err != nil {
		return nil, err
	}
	l := &graphList{store: s, scope: sc, query: q, agentID: agent.ID, after: after, page: page, most: graphPageMost}
	if q.Limit > 0 {
		l.most = min(l.most, q.Limit)
	}
	return page, s.Reading(ctx, func(tx *sqlx.Tx) error { return l.read(ctx, tx) })
}

// graphCursor is a place in the order of a list: by LangGraph's id, and by run for checkpoints in
// different threads with the same id.
type graphCursor struct {
	run int64
	id  string
}

func (l *graphList) cursor() ckpt.Ref {
	return l.store.Numbers(l.scope).WriteCursor(l.after.run) + ckpt.Ref("/"+l.after.id)
}

func (s *Threads) readGraphCursor(sc ckpt.Scope, text string) (*graphCursor, error) {
	if text == "" {
		return nil, nil
	}
	number, id, found := strings.Cut(text, "/")
	run, err := s.Numbers(sc).ReadCursor(number)
	if !found || err != nil {
		return nil, ledger.BadCursor()
	}
	return &graphCursor{run, id}, nil
}

// graphList is a list that is being read.
type graphList struct {
	store   *Threads
	scope   ckpt.Scope
	query   ckpt.GraphQuery
	agentID int64
	after   *graphCursor
	page    *ckpt.GraphPage
	most    int
	bytes   int
}

// graphPlace is a checkpoint that may be listed.
type graphPlace struct {
	Slot     int64  `db:"slot"`
	Run      int64  `db:"run_id"`
	ID       string `db:"id"`
	Metadata string `db:"metadata"`
}

func (l *graphList) read(ctx context.Context, q *sqlx.Tx) error {
	ahead := graphLookAhead
	if len(l.query.Filter) == 0 {
		ahead = l.most + 1
	}
	for {
		places, err := l.places(ctx, q, ahead)
		if err != nil {
			return err
		}
		for i := range places {
			if full, err := l.take(ctx, q, &places[i]); full || err != nil {
				return err
			}
		}
		if len(places) < ahead {
			return nil
		}
	}
}

// places returns the next checkpoints that may be listed.
func (l *graphList) places(ctx context.Context, q *sqlx.Tx, limit int) (places []graphPlace, err error) {
	var before, afterID, only *string
	var afterRun int64
	if l.query.Before != "" {
		before = &l.query.Before
	}
	if l.query.Checkpoint != "" {
		only = &l.query.Checkpoint
	}
	if l.after != nil {
		afterID, afterRun = &l.after.id, l.after.run
	}
	if l.query.Thread != nil && l.query.NS != nil { // one run, whose index has them in order
		runs, err := graphRuns(ctx, q, l.agentID, l.query.Thread, l.query.NS)
		if err != nil || len(runs) == 0 {
			return nil, err
		}
		return places, q.SelectContext(ctx, &places, `SELECT g.slot, g.run_id, g.id, c.metadata FROM graph_checkpoints g
			JOIN checkpoints c ON c.slot = g.slot
			WHERE g.run_id = ?1 AND (?2 IS NULL OR g.id = ?2) AND (?3 IS NULL OR g.id < ?3)
			AND (?4 IS NULL OR g.id < ?4) ORDER BY g.id DESC LIMIT 0 + ?5`,
			runs[0], only, before, afterID, limit)
	}
	return places, q.SelectContext(ctx, &places,
		`SELECT g.slot, g.run_id, g.id, c.metadata FROM graph_threads t JOIN graph_checkpoints g ON g.run_id = t.run_id
			JOIN checkpoints c ON c.slot = g.slot
		WHERE t.agent_id = ?1 AND (?2 IS NULL OR t.thread = ?2) AND (?3 IS NULL OR t.ns = ?3)
		AND (?4 IS NULL OR g.id = ?4) AND (?5 IS NULL OR g.id < ?5)
		AND (?6 IS NULL OR (g.id, g.run_id) < (?6, ?7)) ORDER BY g.id DESC, g.run_id DESC LIMIT 0 + ?8`,
		l.agentID, l.query.Thread, l.query.NS, only, before, afterID, afterRun, limit)
}

// take adds a checkpoint to the page if it passes the filter, and says whether the page is full.
func (l *graphList) take(ctx context.Context, q *sqlx.Tx, place *graphPlace) (full bool, err error) {
	if !passes(place.Metadata, l.query.Filter) {
		l.after = &graphCursor{place.Run, place.ID}
		return false, nil
	}
	if len(l.page.Tuples) == l.most || l.bytes >= graphPageBytes {
		if l.query.Limit == 0 || len(l.page.Tuples) < l.query.Limit {
			l.page.Next = l.cursor()
		}
		return true, nil
	}
	l.after = &graphCursor{place.Run, place.ID}
	tuple, err := l.store.graphTuple(ctx, q, place.Slot)
	if ckpt.CodeOf(err) == ckpt.CodeCorrupt && l.query.Checkpoint == "" && l.most > 1 { // the rest is still listed; verify names it
		l.store.Log.Error("a damaged checkpoint is left out of a list", "checkpoint", place.ID, "error", err)
		return false, nil
	}
	if err != nil {
		return false, err
	}
	for i := range tuple.Values {
		l.bytes += len(tuple.Values[i].Data)
	}
	l.page.Tuples = append(l.page.Tuples, *tuple)
	return false, nil
}

// passes says whether metadata has the members of a filter.
func passes(metadata string, filter map[string]ckpt.JSON) bool {
	if len(filter) == 0 {
		return true
	}
	var members map[string]json.RawMessage
	if json.Unmarshal([]byte(metadata), &members) != nil {
		return false
	}
	for name, want := range filter {
		if got, there := members[name]; !there || !sameJSON(got, want) {
			return false
		}
	}
	return true
}

// The queries for a checkpoint: by its number, by LangGraph's id, and the newest of a thread and namespace.
const (
	graphTupleFrom = `SELECT ` + graphColumns +
		` FROM graph_threads t JOIN graph_checkpoints g ON g.run_id = t.run_id JOIN checkpoints c ON c.slot = g.slot
		JOIN agents a ON a.id = t.agent_id `
	selectGraphSlot   = graphTupleFrom + `WHERE g.slot = ?`
	selectGraphID     = graphTupleFrom + `WHERE t.agent_id = ? AND t.thread = ? AND t.ns = ? AND g.id = ?`
	selectGraphNewest = graphTupleFrom + `WHERE t.agent_id = ? AND t.thread = ? AND t.ns = ? ORDER BY g.id DESC LIMIT 1`
)

// GraphTuple reads one checkpoint with its writes and its values, except values that the caller has. It returns nil if
// there is no such checkpoint.
func (s *Threads) GraphTuple(ctx context.Context, sc ckpt.Scope, r ckpt.GraphGet) (*ckpt.GraphTuple, error) {
	if err := r.Check(); err != nil {
		return nil, err
	}
	agent, err := s.FindAgent(ctx, sc, r.Agent)
	if ckpt.CodeOf(err) == ckpt.CodeNotFound {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	s.AuditRead(sc, "read", r.Agent, "")
	query, args := selectGraphNewest, []any{agent.ID, r.Thread, r.NS}
	if r.Checkpoint != "" {
		query, args = selectGraphID, append(args, r.Checkpoint)
	}
	have := r.Have
	if have == nil {
		have = map[string]string{}
	}
	var tuple *ckpt.GraphTuple
	return tuple, s.Reading(ctx, func(q *sqlx.Tx) error {
		var row graphRow
		err := q.GetContext(ctx, &row, query, args...)
		if err != nil {
			return notThere(err)
		}
		tuple, err = s.readGraphTuple(ctx, q, &row, have)
		return err
	})
}

// graphTuple reads one checkpoint completely.
func (s *Threads) graphTuple(ctx context.Context, q *sqlx.Tx, slot int64) (*ckpt.GraphTuple, error) {
	var row graphRow
	if err := q.GetContext(ctx, &row, selectGraphSlot, slot); err != nil {
		return nil, err
	}
	return s.readGraphTuple(ctx, q, &row, nil)
}

// readGraphTuple reads a checkpoint. If have is not nil, values come with their tags, and without the bytes that the
// caller has.
func (s *Threads) readGraphTuple(ctx context.Context, q *sqlx.Tx, row *graphRow, have map[string]string) (*ckpt.GraphTuple, error) {
	state, lent, err := s.graphBytes(ctx, q, row)
	if err != nil {
		return nil, err
	}
	if lent != nil {
		defer s.States.Release(lent)
	}
	d, err := row.document(state)
	if err != nil {
		return nil, err
	}
	t := &ckpt.GraphTuple{GraphThread: d.GraphThread, ID: row.Graph, Parent: row.Parent, Checkpoint: d.Checkpoint,
		Metadata: d.Metadata, Values: d.answer(have, lent != nil)}
	if t.Writes, err = readGraphWrites(ctx, q, row.RunID, row.Graph); err != nil {
		return nil, err
	}
	head, err := ckpt.ReadGraphHead(d.Checkpoint)
	if err == nil && row.Parent != "" && head.Format > 0 && head.Format < 4 {
		t.Sends, err = readGraphSends(ctx, q, row.RunID, string(row.Parent))
	}
	return t, err
}

// graphDocument reads the state of a checkpoint, from memory if it is there.
func (s *Threads) graphDocument(ctx context.Context, q *sqlx.Tx, row *graphRow) (*graphDocument, error) {
	state, lent, err := s.graphBytes(ctx, q, row)
	if err != nil {
		return nil, err
	}
	if lent != nil {
		state = bytes.Clone(state)
		s.States.Release(lent)
	}
	return row.document(state)
}

func (row *graphRow) document(state []byte) (*graphDocument, error) {
	d, err := readGraphDocument(state)
	if err != nil {
		return nil, ckpt.Wrap(ckpt.CodeCorrupt, err, "checkpoint %s is not a checkpoint of LangGraph: %v; run ckptsidecar verify", row.ID, err)
	}
	return d, nil
}

// graphBytes is the state of a checkpoint. If it is lent from memory, the caller must release it.
func (s *Threads) graphBytes(ctx context.Context, q *sqlx.Tx, row *graphRow) (state []byte, lent *blob.Stored, err error) {
	if b := s.States.Find(row.Owner, row.Agent, row.ID); b != nil {
		return b.State, b, nil
	}
	state, err = blob.Decode(ctx, q, &row.StateRow)
	return state, nil, err
}

// graphLink has what a walk from parent to parent needs of a checkpoint.
type graphLink struct {
	Slot     int64    `db:"slot"`
	ID       string   `db:"id"`
	Parent   ckpt.Ref `db:"parent"`
	Channels string   `db:"channels"`
}

const selectGraphLink = `SELECT slot, id, parent, channels FROM graph_checkpoints WHERE run_id = ?1 AND (?2 = '' OR id = ?2) ORDER BY id DESC LIMIT 1`

func (l *graphLink) has() (map[string]bool, error) {
	var names []string
	if err := json.Unmarshal([]byte(l.Channels), &names); err != nil {
		return nil, ckpt.Wrap(ckpt.CodeCorrupt, &blob.DamageError{What: "its list of channels cannot be read",
			ID: l.ID}, "LangGraph's checkpoint %s is damaged in its list of channels: run ckptsidecar verify", l.ID)
	}
	set := make(map[string]bool, len(names))
	for _, name := range names {
		set[name] = true
	}
	return set, nil
}

// GraphHistory returns what channels are made of: from parent to parent, the writes of each
// checkpoint until there is a value.
func (s *Threads) GraphHistory(ctx context.Context, sc ckpt.Scope, r ckpt.GraphHistoryQuery) ([]ckpt.GraphHistory, error) {
	if err := r.Check(); err != nil {
		return nil, err
	}
	w := newGraphWalk(r.Channels)
	agent, err := s.FindAgent(ctx, sc, r.Agent)
	if ckpt.CodeOf(err) == ckpt.CodeNotFound {
		return w.answer(), nil
	}
	if err != nil {
		return nil, err
	}
	s.AuditRead(sc, "read", r.Agent, "")
	err = s.Reading(ctx, func(q *sqlx.Tx) error {
		runs, err := graphRuns(ctx, q, agent.ID, &r.Thread, &r.NS)
		if err != nil || len(runs) == 0 {
			return err
		}
		return w.walk(ctx, s, q, runs[0], r.Checkpoint)
	})
	if err != nil {
		return nil, err
	}
	return w.answer(), nil
}

// graphWalk is a walk from parent to parent.
type graphWalk struct {
	order []string
	found map[string]*ckpt.GraphHistory // during the walk, writes are newest first
	open  map[string]bool               // channels without a seed so far
}

func newGraphWalk(channels []string) *graphWalk {
	w := &graphWalk{found: map[string]*ckpt.GraphHistory{}, open: map[string]bool{}}
	for _, name := range channels {
		if w.found[name] == nil {
			w.order = append(w.order, name)
			w.found[name], w.open[name] = &ckpt.GraphHistory{Channel: name}, true
		}
	}
	return w
}

func (w *graphWalk) walk(ctx context.Context, s *Threads, q *sqlx.Tx, runID int64, from string) error {
	var link graphLink
	if err := q.GetContext(ctx, &link, selectGraphLink, runID, from); err != nil {
		return notThere(err)
	}
	seen := map[string]bool{link.ID: true}
	for link.Parent != "" && len(w.open) > 0 && !seen[string(link.Parent)] {
		parent := string(link.Parent)
		link, seen[parent] = graphLink{}, true
		if err := q.GetContext(ctx, &link, selectGraphLink, runID, parent); err != nil {
			return notThere(err)
		}
		if err := w.visit(ctx, s, q, runID, &link); err != nil {
			return err
		}
	}
	return nil
}

// notThere treats a checkpoint that is gone as the end of a walk.
func notThere(err error) error {
	if ledger.IsNoRows(err) {
		return nil
	}
	return err
}

func (w *graphWalk) visit(ctx context.Context, s *Threads, q *sqlx.Tx, runID int64, link *graphLink) error {
	writes, err := readGraphWrites(ctx, q, runID, link.ID)
	if err != nil {
		return err
	}
	for i := len(writes) - 1; i >= 0; i-- {
		if name := writes[i].Channel; w.open[name] {
			w.found[name].Writes = append(w.found[name].Writes, writes[i])
		}
	}
	has, err := link.has()
	if err != nil {
		return err
	}
	for name := range w.open {
		if has[name] {
			return w.seed(ctx, s, q, link)
		}
	}
	return nil
}

// seed takes the values of a checkpoint.
func (w *graphWalk) seed(ctx context.Context, s *Threads, q *sqlx.Tx, link *graphLink) error {
	tuple, err := s.graphTuple(ctx, q, link.Slot)
	if err != nil {
		return err
	}
	for i := range tuple.Values {
		if v := &tuple.Values[i]; w.open[v.Channel] {
			w.found[v.Channel].Seed = &v.GraphBytes
			delete(w.open, v.Channel)
		}
	}
	return nil
}

func (w *graphWalk) answer() []ckpt.GraphHistory {
	list := make([]ckpt.GraphHistory, len(w.order))
	for i, name := range w.order {
		h := w.found[name]
		for a, b := 0, len(h.Writes)-1; a < b; a, b = a+1, b-1 {
			h.Writes[a], h.Writes[b] = h.Writes[b], h.Writes[a]
		}
		list[i] = *h
	}
	return list
}
