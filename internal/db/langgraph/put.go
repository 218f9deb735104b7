package langgraph

import (
	"context"

	"github.com/jmoiron/sqlx"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db/blob"
	"github.com/ckptsidecar/ckptsidecar/internal/db/ledger"
	"github.com/ckptsidecar/ckptsidecar/internal/db/saves"
	"github.com/ckptsidecar/ckptsidecar/internal/db/sqlite"
	"github.com/ckptsidecar/ckptsidecar/internal/wellformed"
)

// graphPut is a put on its way: an ordinary save, and the rows that are kept beside it.
type graphPut struct {
	*saves.Save
	document *graphDocument
	id       string
	channels string

	saved *ckpt.GraphSaved
}

// GraphPut stores a checkpoint of LangGraph. It takes the values that the request leaves to its parent from the parent.
// Without a parent, it takes them from the other checkpoints of the thread. If a value is missing, it writes nothing,
// and the reply names what is missing.
func (s *Threads) GraphPut(ctx context.Context, sc ckpt.Scope, r *ckpt.GraphPut) (*ckpt.GraphSaved, error) {
	if err := ckpt.CheckAgentName(r.Agent); err != nil {
		return nil, err
	}
	if err := wellformed.GraphPut(r); err != nil {
		return nil, err
	}
	head, err := ckpt.ReadGraphHead(r.Checkpoint)
	if err != nil {
		return nil, err
	}
	d := &graphDocument{GraphThread: r.GraphThread, Parent: r.Parent, Checkpoint: r.Checkpoint, Metadata: r.Metadata,
		Values: graphValues(r.Values, head.Versions)}
	if len(r.Carry) == 0 {
		return s.graphTagged(ctx, sc, r, d, head.ID)
	}
	release, missing, err := s.graphCarry(ctx, sc, r, d, head.Versions)
	if err != nil {
		return nil, err
	}
	defer release()
	if len(missing) > 0 {
		return &ckpt.GraphSaved{Missing: missing, Run: r.RunName(), Tags: map[string]string{}}, nil
	}
	return s.graphTagged(ctx, sc, r, d, head.ID)
}

// graphTagged saves a document, and returns the tags of the values that were sent. If a policy redacts secrets, the
// stored value differs from the sent one and has another tag.
func (s *Threads) graphTagged(ctx context.Context, sc ckpt.Scope, r *ckpt.GraphPut, d *graphDocument, id string) (*ckpt.GraphSaved, error) {
	tags := graphTags(r.Values)
	saved, err := s.graphSave(ctx, sc, r.Agent, d, id)
	if err != nil {
		return nil, err
	}
	saved.Tags = tags
	return saved, nil
}

// graphCarry completes a document from its parent, or without a parent from the rest of its thread. The caller must
// call release after the document was written.
func (s *Threads) graphCarry(ctx context.Context, sc ckpt.Scope, r *ckpt.GraphPut, d *graphDocument,
	versions map[string]ckpt.JSON) (release func(), missing []string, err error) {
	if r.Parent == "" {
		missing, err = s.graphElsewhere(ctx, sc, r, d, versions)
		return func() {}, missing, err
	}
	if base := s.States.Get(blob.RunKey{Owner: sc.Whose(), Agent: r.Agent,
		Run: r.RunName()}); base != nil { // most often the parent is the newest
		if parent, _ := readGraphDocument(base.State); parent.is(string(r.Parent)) {
			return func() { s.States.Release(base) }, d.carry(parent, r.Carry, versions), nil
		}
		s.States.Release(base)
	}
	state, release, err := s.graphState(ctx, sc, r.Agent, r.GraphThread, string(r.Parent))
	if ckpt.CodeOf(err) == ckpt.CodeNotFound || ckpt.CodeOf(err) == ckpt.CodeCorrupt {
		return func() {}, r.Carry, nil // the client has the values
	}
	if err != nil {
		return nil, nil, err
	}
	parent, err := readGraphDocument(state)
	if err != nil {
		s.Log.Warn("a checkpoint of LangGraph takes nothing from its parent, which cannot be read", "agent", r.Agent, "error", err)
		release()
		return func() {}, r.Carry, nil
	}
	return release, d.carry(parent, r.Carry, versions), nil
}

// is says whether a document belongs to LangGraph's checkpoint with an id.
func (d *graphDocument) is(id string) bool {
	if d == nil {
		return false
	}
	head, err := ckpt.ReadGraphHead(d.Checkpoint)
	return err == nil && head.ID == id
}

// graphState is the state of a checkpoint, found by LangGraph's names.
func (s *Threads) graphState(ctx context.Context, sc ckpt.Scope, agent string, t ckpt.GraphThread,
	id string) (state []byte, release func(), err error) {
	row, err := s.FindAgent(ctx, sc, agent)
	if err != nil {
		return nil, nil, err
	}
	var ours string
	err = s.RO.GetContext(ctx, &ours, `SELECT c.id FROM graph_threads t JOIN graph_checkpoints g ON g.run_id = t.run_id
		JOIN checkpoints c ON c.slot = g.slot
		WHERE t.agent_id = ? AND t.thread = ? AND t.ns = ? AND g.id = ?`, row.ID, t.Thread, t.NS, id)
	if ledger.IsNoRows(err) {
		return nil, nil, ledger.NoCheckpoint(id)
	}
	if err != nil {
		return nil, nil, sqlite.ReadError(err)
	}
	state, _, release, err = s.Base(ctx, sc, agent, ours)
	return state, release, err
}

// graphSave saves a complete document.
func (s *Threads) graphSave(ctx context.Context, sc ckpt.Scope, agent string, d *graphDocument, id string) (*ckpt.GraphSaved, error) {
	state, err := d.write(s.Memory)
	if err != nil {
		return nil, err
	}
	r := &ckpt.SaveRequest{Agent: agent, Run: d.RunName(), Kind: ckpt.KindRoutine, ContentType: ckpt.ContentTypeGraph,
		Metadata: []byte(d.Metadata), State: state, Lent: true}
	if err := wellformed.SaveRest(r); err != nil {
		return nil, err
	}
	p := &graphPut{document: d, id: id}
	if p.channels, err = d.channels(); err != nil {
		return nil, err
	}
	if p.Save, err = s.NewSave(ctx, sc, r); err != nil {
		return nil, err
	}
	defer p.Leave()
	err = s.Submit(&ledger.Op{Owner: sc.Caller.Owner, Size: int64(len(state)), Entry: p.Entry, Do: func(tx *ledger.Tx) error {
		return s.putGraph(tx, p)
	}})
	if err != nil {
		return nil, err
	}
	return p.saved, nil
}

// graphThere is what is already stored of a checkpoint and of its parent.
type graphThere struct {
	ID         string   `db:"id"` // LangGraph's id
	Slot       int64    `db:"slot"`
	Checkpoint string   `db:"checkpoint"` // our id
	SHA256     string   `db:"sha256"`
	Seq        int64    `db:"seq"`
	Head       ckpt.Ref `db:"head"`
	RunID      int64    `db:"run_id"`
}

func (s *Threads) putGraph(tx *ledger.Tx, p *graphPut) error {
	agent, err := s.graphAgent(tx, p.Scope, p.Request.Agent)
	if err != nil {
		return err
	}
	old, parent, err := findGraphThere(tx, agent, p)
	if err != nil {
		return err
	}
	if old == nil && parent == nil { // the thread may be new
		if err := checkGraphRun(tx, agent, p.Request.Run, p.document.GraphThread); err != nil {
			return err
		}
	}
	p.saved = &ckpt.GraphSaved{Missing: []string{}, Run: p.Request.Run}
	if old != nil && old.SHA256 == p.State.Sha256 { // the same put again
		p.saved.Checkpoint, p.saved.Seq = ckpt.Ref(old.Checkpoint), old.Seq
		return nil
	}
	p.Request.Parent = ""
	if parent != nil && parent.Head != ckpt.Ref(parent.Checkpoint) {
		p.Request.Parent = ckpt.Ref(parent.Checkpoint)
	}
	saved, err := s.Put(tx, p.Save)
	if err != nil {
		return err
	}
	p.saved.Checkpoint, p.saved.Seq, p.saved.Replaced, p.saved.Drift = ckpt.Ref(saved.ID), saved.Seq, old != nil, saved.Drift
	return s.noteGraph(tx, agent, p, old, parent)
}

// graphAgent finds an agent or makes it. If the agent's policy was never set, the agent gets the
// policy for checkpointers.
func (s *Threads) graphAgent(tx *ledger.Tx, sc ckpt.Scope, name string) (*ledger.AgentRow, error) {
	agent, err := s.Agent(tx, sc.Whose(), name)
	if err != nil || agent != nil && agent.Own != "{}" {
		return agent, err
	}
	own, err := wellformed.PolicyText(ckpt.GraphPolicy())
	if err != nil {
		return nil, err
	}
	return s.StorePolicy(tx, sc, name, own, ledger.Entry(sc, "set_policy", name))
}

// checkGraphRun refuses a run that belongs to another thread.
func checkGraphRun(tx *ledger.Tx, agent *ledger.AgentRow, run string, t ckpt.GraphThread) error {
	var there ckpt.GraphThread
	found, err := tx.Get(&there, `SELECT t.thread, t.ns FROM runs r JOIN graph_threads t ON t.run_id = r.id
		WHERE r.agent_id = ? AND r.name = ?`, agent.ID, run)
	if err == nil && found && there != t {
		return ckpt.Errorf(ckpt.CodeConflict, "the run %s belongs to another thread: give this run another name", run)
	}
	return err
}

func findGraphThere(tx *ledger.Tx, agent *ledger.AgentRow, p *graphPut) (old, parent *graphThere, err error) {
	var rows []graphThere
	err = tx.List(&rows, `SELECT g.id, g.slot, c.id AS checkpoint, c.sha256, c.seq, r.head, r.id AS run_id FROM graph_threads t
		JOIN graph_checkpoints g ON g.run_id = t.run_id
		JOIN checkpoints c ON c.slot = g.slot JOIN runs r ON r.id = t.run_id WHERE t.agent_id = ? AND t.thread = ? AND t.ns = ? AND g.id IN (?, ?)`,
		agent.ID, p.document.Thread, p.document.NS, p.id, p.document.Parent)
	for i := range rows {
		if rows[i].ID == p.id {
			old = &rows[i]
		} else {
			parent = &rows[i]
		}
	}
	return old, parent, err
}

// noteGraph writes the rows beside a save, and removes what the save replaces.
func (s *Threads) noteGraph(tx *ledger.Tx, agent *ledger.AgentRow, p *graphPut, old, parent *graphThere) error {
	var runID int64
	switch {
	case parent != nil:
		runID = parent.RunID
	case old != nil:
		runID = old.RunID
	default:
		run, err := tx.Run(agent.ID, p.Request.Run)
		if err != nil {
			return err
		}
		if err := graphThread(tx, agent, run, p.document.GraphThread); err != nil {
			return err
		}
		runID = run.ID
	}
	err := tx.Insert(`INSERT INTO graph_checkpoints (slot, run_id, id, parent, channels) SELECT slot, ?2, ?3, ?4, ?5 FROM checkpoints
		WHERE id = ?1 AND +run_id = ?2
		ON CONFLICT (run_id, id) DO UPDATE SET slot = excluded.slot, parent = excluded.parent, channels = excluded.channels`,
		string(p.saved.Checkpoint), runID, p.id, p.document.Parent, p.channels)
	if err != nil || old == nil {
		return err
	}
	return s.removeReplaced(tx, agent, runID, old, p)
}

// removeReplaced removes a checkpoint that LangGraph has put again, unless it is pinned or needed.
func (s *Threads) removeReplaced(tx *ledger.Tx, agent *ledger.AgentRow, runID int64, old *graphThere, p *graphPut) error {
	var row ledger.HeldRow
	found, err := tx.Get(&row, `SELECT `+ledger.HeldColumns+` FROM checkpoints WHERE slot = ? AND pinned = 0`, old.Slot)
	if err != nil || !found { // the save's retention has removed it, or it is pinned
		return err
	}
	run, err := tx.RunByID(runID)
	if err != nil {
		return err
	}
	needs, err := tx.NeedsOf(run)
	if err != nil || needs.Of(row.ID) != "" {
		return err
	}
	_, err = s.Remove(tx, agent, run, []ledger.HeldRow{row}, []string{"LangGraph has put it again"}, p.Entry)
	return err
}

// graphThread notes the thread of a run.
func graphThread(tx *ledger.Tx, agent *ledger.AgentRow, run *ledger.RunRow, t ckpt.GraphThread) error {
	tx.Touches(run)
	return tx.Insert(`INSERT INTO graph_threads (run_id, agent_id, thread, ns) VALUES (?, ?, ?, ?)
		ON CONFLICT DO NOTHING`, run.ID, agent.ID, t.Thread, t.NS)
}

// GraphImported notes a LangGraph checkpoint that an import brought in. A checkpoint that cannot be
// read, or that exists already, stays an ordinary checkpoint.
func GraphImported(tx *ledger.Tx, agent *ledger.AgentRow, run *ledger.RunRow, seq int64, state []byte) error {
	d, manifest, _, err := readGraphHead(state)
	if err != nil || run.Name != d.RunName() {
		return nil
	}
	head, err := ckpt.ReadGraphHead(d.Checkpoint)
	if err != nil {
		return nil
	}
	for i := range manifest {
		d.Values = append(d.Values, manifest[i].value(nil))
	}
	channels, err := d.channels()
	if err != nil {
		return err
	}
	if err := graphThread(tx, agent, run, d.GraphThread); err != nil {
		return err
	}
	return tx.Insert(`INSERT INTO graph_checkpoints (slot, run_id, id, parent, channels) VALUES (?, ?, ?, ?, ?)
		ON CONFLICT DO NOTHING`, ledger.Slot(run.ID, seq), run.ID, head.ID, d.Parent, channels)
}

// graphRuns are the runs of a thread, or of all threads of an agent if thread is nil, and of a
// namespace, or of all namespaces if ns is nil.
func graphRuns(ctx context.Context, q sqlx.QueryerContext, agentID int64, thread, ns *string) (ids []int64, err error) {
	return ids, sqlx.SelectContext(ctx, q, &ids,
		`SELECT run_id FROM graph_threads WHERE agent_id = ?1 AND (?2 IS NULL OR thread = ?2) AND (?3 IS NULL OR ns = ?3)`,
		agentID, thread, ns)
}

// Threads stores LangGraph's threads.
type Threads struct {
	*saves.Saves
}

// New makes a Threads that stores LangGraph's threads as saves.
func New(s *saves.Saves) *Threads { return &Threads{s} }
