package langgraph

import (
	"context"
	"encoding/json"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db/blob"
	"github.com/ckptsidecar/ckptsidecar/internal/db/ledger"
	"github.com/ckptsidecar/ckptsidecar/internal/db/sqlite"
)

// graphAtOnce is how many checkpoints one transaction removes or copies. More checkpoints take
// several transactions, so that no other caller waits for long. Repeating the call finishes an
// interrupted one.
const graphAtOnce = 1000

// graphRemoving is one transaction of a removal of LangGraph's checkpoints.
type graphRemoving struct {
	store   *Threads
	tx      *ledger.Tx
	agent   *ledger.AgentRow
	entry   ledger.AuditEntry
	reason  string
	left    int // how many more may be removed
	removed int64
}

// graphRemove repeats do until it says that it is done, in as many transactions as needed. An agent
// that does not exist has nothing to remove.
func (s *Threads) graphRemove(sc ckpt.Scope, name string, e ledger.AuditEntry, reason string,
	do func(*graphRemoving) error) (*ckpt.GraphRemoved, error) {
	if err := ckpt.CheckAgentName(name); err != nil {
		return nil, err
	}
	total := &ckpt.GraphRemoved{}
	for more := true; more; {
		var g *graphRemoving
		err := s.Submit(&ledger.Op{Owner: sc.Caller.Owner, Claim: sqlite.Frees, Entry: e, Do: func(tx *ledger.Tx) error {
			g = &graphRemoving{store: s, tx: tx, entry: e, reason: reason, left: graphAtOnce}
			agent, err := s.Agent(tx, sc.Whose(), name)
			if err != nil || agent == nil {
				return err
			}
			g.agent = agent
			return do(g)
		}})
		if err != nil {
			return nil, err
		}
		total.Removed += g.removed
		more = g.left <= 0
	}
	return total, nil
}

// GraphDeleteThread permanently removes all namespaces of a thread.
func (s *Threads) GraphDeleteThread(_ context.Context, sc ckpt.Scope, agent, thread string) (*ckpt.GraphRemoved, error) {
	if err := ckpt.CheckGraphThread(thread); err != nil {
		return nil, err
	}
	e := ledger.Entry(sc, "delete_thread", agent)
	return s.graphRemove(sc, agent, e, "its thread was deleted by "+sc.Caller.Owner, func(g *graphRemoving) error { return g.thread(thread) })
}

// thread removes a thread, up to the limit of one transaction.
func (g *graphRemoving) thread(thread string) error {
	return g.eachRun(thread, g.run)
}

// eachRun calls do for each run of a thread, up to the limit of the transaction.
func (g *graphRemoving) eachRun(thread string, do func(id int64) error) error {
	runs, err := g.runs(thread)
	if err != nil {
		return err
	}
	for _, id := range runs {
		if g.left <= 0 {
			return nil
		}
		if err := do(id); err != nil {
			return err
		}
	}
	return nil
}

func (g *graphRemoving) runs(thread string) (ids []int64, err error) {
	return ids, g.tx.List(&ids, `SELECT run_id FROM graph_threads WHERE agent_id = ? AND thread = ? ORDER BY run_id`, g.agent.ID, thread)
}

// run removes a run: its oldest checkpoints first, so that the rest stays complete.
func (g *graphRemoving) run(id int64) error {
	run, err := g.tx.RunByID(id)
	if err != nil {
		return err
	}
	if err := g.mayGo(run); err != nil {
		return err
	}
	var rows []ledger.HeldRow
	if err := g.tx.List(&rows, `SELECT `+ledger.HeldColumns+` FROM checkpoints WHERE run_id = ? ORDER BY seq LIMIT 0 + ?`, id, g.left); err != nil {
		return err
	}
	if err := g.remove(run, rows); err != nil || g.left <= 0 { // the next transaction sees whether that was all
		return err
	}
	if _, err := g.store.DropRows(g.tx, g.agent, run); err != nil {
		return err
	}
	e := g.entry
	e.Run, e.Life, e.Reason = run.Name, run.Life, g.reason
	return g.tx.Audit(e)
}

// mayGo refuses to remove a run that has a pinned checkpoint, or an operation that has not ended.
func (g *graphRemoving) mayGo(run *ledger.RunRow) error {
	var by string
	_, err := g.tx.Get(&by, `SELECT 'the checkpoint ' || id || ' is pinned: unpin it first' FROM checkpoints WHERE run_id = ?1 AND pinned = 1
		UNION ALL SELECT 'the operation ' || key || ' is ' || status || ': end it first' FROM operations
		WHERE run_id = ?1 AND status IN ('open', 'uncertain') LIMIT 1`, run.ID)
	if err == nil && by != "" {
		return ckpt.Errorf(ckpt.CodeConflict, "the run %s cannot be deleted: %s", run.Name, by)
	}
	return err
}

// remove removes checkpoints of a run.
func (g *graphRemoving) remove(run *ledger.RunRow, rows []ledger.HeldRow) error {
	if len(rows) == 0 {
		return nil
	}
	reasons := make([]string, len(rows))
	for i := range reasons {
		reasons[i] = g.reason
	}
	if _, err := g.store.Remove(g.tx, g.agent, run, rows, reasons, g.entry); err != nil {
		return err
	}
	g.left -= len(rows)
	g.removed += int64(len(rows))
	return g.tx.MoveHead(run.ID)
}

// GraphDeleteRuns removes the checkpoints of LangGraph's runs, by the run_id in their metadata.
func (s *Threads) GraphDeleteRuns(_ context.Context, sc ckpt.Scope, agent string, runIDs []string) (*ckpt.GraphRemoved, error) {
	list, err := json.Marshal(runIDs)
	if err != nil {
		return nil, err
	}
	e := ledger.Entry(sc, "delete_runs", agent)
	return s.graphRemove(sc, agent, e, "its run of LangGraph was deleted by "+sc.Caller.Owner, func(g *graphRemoving) error {
		var rows []struct {
			ledger.HeldRow
			RunID int64 `db:"run_id"`
		}
		err := g.tx.List(&rows, `SELECT c.slot, c.n, c.id, c.seq, c.kind, c.created_at, c.stored_size, c.pinned, c.suspect, c.operation,
			c.pieces IS NULL AS inline, c.run_id
			FROM graph_threads t JOIN graph_checkpoints g ON g.run_id = t.run_id JOIN checkpoints c ON c.slot = g.slot
			WHERE t.agent_id = ?1 AND c.pinned = 0 AND json_extract(c.metadata, '$.run_id') IN (SELECT value FROM json_each(?2))
			ORDER BY c.run_id, c.seq LIMIT 0 + ?3`,
			g.agent.ID, string(list), g.left)
		if err != nil {
			return err
		}
		of := map[int64][]ledger.HeldRow{}
		for i := range rows {
			of[rows[i].RunID] = append(of[rows[i].RunID], rows[i].HeldRow)
		}
		for id, held := range of {
			run, err := g.tx.RunByID(id)
			if err != nil {
				return err
			}
			if err := g.remove(run, held); err != nil {
				return err
			}
		}
		return nil
	})
}

// GraphPrune shortens threads. It removes each thread completely, or keeps in each namespace only
// the newest checkpoint and what that needs.
func (s *Threads) GraphPrune(_ context.Context, sc ckpt.Scope, r ckpt.GraphPrune) (*ckpt.GraphRemoved, error) {
	if err := r.Check(); err != nil {
		return nil, err
	}
	e := ledger.Entry(sc, "prune_threads", r.Agent)
	total := &ckpt.GraphRemoved{}
	for _, thread := range r.Threads {
		if r.Strategy == ckpt.GraphDelete {
			e.Action = "delete_thread"
		}
		gone, err := s.graphRemove(sc, r.Agent, e, "its thread was pruned by "+sc.Caller.Owner, func(g *graphRemoving) error {
			if r.Strategy == ckpt.GraphDelete {
				return g.thread(thread)
			}
			return g.prune(thread)
		})
		if err != nil {
			return nil, err
		}
		total.Removed += gone.Removed
	}
	return total, nil
}

// prune keeps of each namespace the newest checkpoint and what that needs.
func (g *graphRemoving) prune(thread string) error {
	return g.eachRun(thread, g.pruneRun)
}

func (g *graphRemoving) pruneRun(id int64) error {
	keep, newest, err := g.needed(id)
	if err != nil || newest == "" {
		return err
	}
	var rows []struct {
		ledger.HeldRow
		Graph string `db:"graph_id"`
	}
	err = g.tx.List(&rows, `SELECT `+ledger.HeldColumns+`, graph_id FROM (SELECT c.*, g.id AS graph_id
		FROM graph_checkpoints g JOIN checkpoints c ON c.slot = g.slot
		WHERE g.run_id = ? AND c.pinned = 0 AND g.id < ?) ORDER BY graph_id`, id, newest)
	if err != nil {
		return err
	}
	var gone []ledger.HeldRow
	for i := range rows {
		if !keep[rows[i].Graph] && len(gone) < g.left {
			gone = append(gone, rows[i].HeldRow)
		}
	}
	run, err := g.tx.RunByID(id)
	if err != nil {
		return err
	}
	if err := g.remove(run, gone); err != nil {
		return err
	}
	return g.tx.Exec(`DELETE FROM graph_writes WHERE run_id = ?1 AND checkpoint < ?2
		AND NOT EXISTS (SELECT 1 FROM graph_checkpoints g WHERE g.run_id = ?1 AND g.id = graph_writes.checkpoint)`, id, newest)
}

// needed returns the newest checkpoint of a run and the ancestors that complete it: back to a value
// of each of its delta channels, and, for a checkpoint of an old format, the parent if it has the
// sends.
func (g *graphRemoving) needed(runID int64) (keep map[string]bool, newest string, err error) {
	var link graphLink
	found, err := g.tx.Get(&link, selectGraphLink, runID, "")
	if err != nil || !found {
		return nil, "", err
	}
	newest = link.ID
	keep = map[string]bool{newest: true}
	open, steps, err := g.deltaChannels(link.Slot)
	if err == nil && steps > 0 {
		steps, err = g.sends(runID, link.Parent)
	}
	if err != nil {
		return nil, "", err
	}
	for link.Parent != "" && (len(open) > 0 || steps > 0) && !keep[string(link.Parent)] {
		parent := string(link.Parent)
		link = graphLink{}
		if found, err = g.tx.Get(&link, selectGraphLink, runID, parent); err != nil || !found {
			return keep, newest, err
		}
		keep[parent] = true
		has, err := link.has()
		if err != nil {
			return nil, "", err
		}
		for name := range has {
			delete(open, name)
		}
		steps--
	}
	return keep, newest, nil
}

// deltaChannels are the channels of a checkpoint that are made of its ancestors' writes, and how
// many ancestors it needs besides.
func (g *graphRemoving) deltaChannels(slot int64) (open map[string]bool, steps int, err error) {
	var row struct {
		ID       string `db:"id"`
		Metadata string `db:"metadata"`
	}
	if _, err := g.tx.Get(&row, `SELECT id, metadata FROM checkpoints WHERE slot = ?`, slot); err != nil {
		return nil, 0, err
	}
	var metadata struct {
		Counters map[string]json.RawMessage `json:"counters_since_delta_snapshot"`
	}
	if err := json.Unmarshal([]byte(row.Metadata), &metadata); err != nil {
		return nil, 0, ckpt.Wrap(ckpt.CodeCorrupt, &blob.DamageError{What: "its metadata cannot be read", ID: row.ID},
			"checkpoint %s is damaged in its metadata: nothing was pruned; run ckptsidecar verify", row.ID)
	}
	open = make(map[string]bool, len(metadata.Counters))
	for name := range metadata.Counters {
		open[name] = true
	}
	d, err := g.document(slot)
	if err != nil {
		return nil, 0, err
	}
	for i := range d.Values {
		delete(open, d.Values[i].Channel)
	}
	if head, err := ckpt.ReadGraphHead(d.Checkpoint); err == nil && head.Format > 0 && head.Format < 4 {
		steps = 1
	}
	return open, steps, nil
}

// sends is 1 if the tasks of a checkpoint have sent to nodes, else 0.
func (g *graphRemoving) sends(runID int64, id ckpt.Ref) (some int, err error) {
	_, err = g.tx.Get(&some, `SELECT EXISTS (SELECT 1 FROM graph_writes
		WHERE run_id = ? AND checkpoint = ? AND channel = ?)`, runID, string(id), ckpt.GraphTasks)
	return some, err
}

// document reads the state of a checkpoint in the writer's transaction.
func (g *graphRemoving) document(slot int64) (*graphDocument, error) {
	var row blob.StateRow
	if _, err := g.tx.Get(&row, `SELECT n, id, size, sha256, body, pieces FROM checkpoints WHERE slot = ?`, slot); err != nil {
		return nil, err
	}
	state, err := blob.Decode(g.tx.Ctx, g.tx.Conn, &row)
	if err != nil {
		return nil, err
	}
	return readGraphDocument(state)
}

// GraphCopyThread copies the checkpoints and writes of a thread, in all of its namespaces, under
// the same ids. Each is a save of its own: repeating the call finishes an interrupted copy.
func (s *Threads) GraphCopyThread(ctx context.Context, sc ckpt.Scope, r ckpt.GraphCopy) (*ckpt.GraphCopied, error) {
	if err := r.Check(); err != nil {
		return nil, err
	}
	copied := &ckpt.GraphCopied{}
	agent, err := s.FindAgent(ctx, sc, r.Agent)
	if ckpt.CodeOf(err) == ckpt.CodeNotFound || err == nil && r.From == r.To {
		return copied, nil
	}
	if err != nil {
		return nil, err
	}
	var threads []struct {
		RunID int64  `db:"run_id"`
		NS    string `db:"ns"`
	}
	err = s.RO.SelectContext(ctx, &threads, `SELECT run_id, ns FROM graph_threads WHERE agent_id = ? AND thread = ?
		ORDER BY run_id`, agent.ID, r.From)
	if err != nil {
		return nil, sqlite.ReadError(err)
	}
	for _, t := range threads {
		c := &graphCopying{store: s, scope: sc, agent: agent, from: t.RunID, to: ckpt.GraphThread{Thread: r.To, NS: t.NS}}
		if err := c.all(ctx); err != nil {
			return nil, err
		}
		copied.Copied += c.copied
	}
	return copied, nil
}
