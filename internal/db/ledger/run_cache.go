package ledger

import (
	"slices"

	"github.com/ckptsidecar/ckptsidecar/internal/db/blob"
	"github.com/ckptsidecar/ckptsidecar/internal/db/usage"
)

// CachedRun is what the next save of a run has to know, as it is on disk: it
// spares a save five questions to the database. Only the writer has it.
type CachedRun struct {
	Run   RunRow    // as far as saves look at it and change it
	Whole bool      // whether what follows is known
	Rows  []HeldRow // what a routine save asks retention about, newest first
	// Quiet says that nobody needs any of its checkpoints but the next save: no
	// open operation, no prompt, no fork.
	Quiet bool
	Graph bool  // it is a thread of LangGraph: rows beside name those of its checkpoints
	HeadN int64 // the row of the save of Run.Head; 0 where that is gone
}

// NewestIs says that a state is the newest of the run, where that is known.
func (c *CachedRun) NewestIs(b *blob.Stored) bool {
	if c == nil || b == nil || len(c.Rows) == 0 || c.Run.ID != b.RunID || b.Doubted() {
		return false
	}
	row := &c.Rows[0]
	return row.N == b.N && row.ID == b.ID && row.Seq == b.Seq && row.Seq == c.Run.LastSeq && !row.Inline
}

// cachedKey names a run by its agent's number.
type cachedKey struct {
	agent int64
	name  string
}

// The bounds of what is kept: so many runs, with so many checkpoints each.
const (
	cachedMost     = 4096
	CachedRowsMost = 64
)

// runCache has the runs that are being saved. Whatever else changes a run, a
// checkpoint or who needs one makes the writer forget them all (see forgets),
// and so does a rollback, and another program that writes.
type runCache map[cachedKey]*CachedRun

// Get answers what is known of a run, nil for nothing.
func (r runCache) Get(agent int64, name string) *CachedRun { return r[cachedKey{agent, name}] }

// Put keeps a run of which all is known.
func (r runCache) Put(c *CachedRun) {
	if len(r) >= cachedMost {
		r.ForgetAll()
	}
	r[cachedKey{c.Run.AgentID, c.Run.Name}] = c
}

func (r runCache) ForgetAll() { clear(r) }

func (r runCache) Forget(run *RunRow) { delete(r, cachedKey{run.AgentID, run.Name}) }

// The statements that change a run's history and tell the run cache of it, or change
// nothing that it knows: a run that is new is not in it.
const (
	insertAgent = `INSERT INTO agents (id, owner, name, uid, created_at, policy, policy_own, policy_at, recovery_keep_s, pre_operation_keep_s)
		VALUES (` + NextAgent + `, ?, ?, nullif(?, ''), ?, ?, ?, ?, ?, ?)`
	insertRun = `INSERT INTO runs (id, agent_id, name, started_at, updated_at, heartbeat_at, segment_at)
		VALUES (` + NextRun + `, ?1, ?2, ?3, ?3, ?3, ?3)`
	insertCheckpoint = `INSERT INTO checkpoints (slot, n, id, run_id, seq, kind, parent, created_at, size, stored_size, sha256, content_type,
		labels, metadata, step, operation, pinned, suspect, state_of, program, pieces, body)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`
	takeRow = `UPDATE checkpoints SET n = ?, id = ?, seq = ?, parent = ?, created_at = ?, size = ?, stored_size = ?, sha256 = ?, content_type = ?,
		labels = ?, metadata = ?, step = ?, operation = ?, suspect = ?, state_of = ?, program = ?, body = ? WHERE slot = ? AND n = ?`
	updateSavedRun = `UPDATE runs SET last_seq = ?1, head = ?2, removed = ?3, stored_bytes = ?4, updated_at = ?5, heartbeat_at = ?5 WHERE id = ?6`
	updateRemoved  = `UPDATE runs SET removed = ?, stored_bytes = ?, updated_at = ? WHERE id = ?`
	updateSign     = `UPDATE runs SET updated_at = ?1, heartbeat_at = ?1 WHERE id = ?2`
	UpdateBeat     = `UPDATE runs SET heartbeat_at = ? WHERE id = ?`
	UpdateProgress = `UPDATE runs SET progress = ?, progress_at = ? WHERE id = ?`
	UpdateStepped  = `UPDATE runs SET updated_at = ?1, heartbeat_at = ?1, steps_ended = steps_ended + 1, input_tokens = input_tokens + ?2,
		output_tokens = output_tokens + ?3, cost_usd = cost_usd + ?4 WHERE id = ?5`
	UpdateObserved = `UPDATE runs SET updated_at = ?1, heartbeat_at = ?1, steps_ended = steps_ended + ?2, input_tokens = input_tokens + ?3,
		output_tokens = output_tokens + ?4, cost_usd = cost_usd + ?5 WHERE id = ?6`
	UpdateBack      = `UPDATE runs SET back_seq = ? WHERE id = ?`
	UpdateLastEvent = `UPDATE runs SET last_event = ? WHERE id = ?`
)

// What deletes a checkpoint answers what its row took beside the state, unless that
// is known.
const deleteKnown = `DELETE FROM checkpoints WHERE slot = ?`

var (
	besideOf         = `SELECT ` + usage.OfRuns["checkpoints"] + ` FROM checkpoints WHERE slot = ?`
	deleteInline     = `DELETE FROM checkpoints WHERE slot = ? RETURNING ` + usage.OfRuns["checkpoints"]
	deleteCheckpoint = `DELETE FROM checkpoints WHERE slot = ? RETURNING pieces, ` + usage.OfRuns["checkpoints"] + ` AS beside`
)

var (
	telling = []string{insertRun, insertAgent, insertCheckpoint, takeRow, deleteKnown, deleteInline, deleteCheckpoint, updateSavedRun,
		updateRemoved, updateSign, UpdateBeat, UpdateProgress, UpdateStepped, UpdateObserved, UpdateBack, UpdateLastEvent}
	watching = []string{"agents", "runs", "checkpoints", "operations", "prompts", "graph_threads"}
)

// forgets says that a statement changes what the run cache knows without telling it.
func forgets(query string, tables []string) bool {
	return !slices.Contains(telling, query) && slices.ContainsFunc(tables, func(table string) bool { return slices.Contains(watching, table) })
}
