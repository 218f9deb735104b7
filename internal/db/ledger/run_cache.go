package ledger

import (
	"slices"

	"github.com/ckptsidecar/ckptsidecar/internal/db/blob"
	"github.com/ckptsidecar/ckptsidecar/internal/db/usage"
)

// CachedRun is what the next save of a run must know, as it is on disk. It spares a save five
// queries. Only the writer uses it.
type CachedRun struct {
	Run   RunRow    // only the columns that saves read or change
	Whole bool      // whether the fields below are known
	Rows  []HeldRow // the rows that a routine save passes to retention, newest first
	// Quiet says that only the next save needs any of its checkpoints: there is no open operation,
	// no prompt, no fork.
	Quiet bool
	Graph bool  // it is a LangGraph thread: rows in other tables name those of its checkpoints
	HeadN int64 // the row of the save of Run.Head; 0 if that is gone
}

// NewestIs says whether a state is known to be the newest of the run.
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

// The bounds of the cache: this many runs, with this many checkpoints each.
const (
	cachedMost     = 4096
	CachedRowsMost = 64
)

// runCache has the runs that are being saved. The writer forgets all of them if a statement changes
// a run, a checkpoint or who needs a checkpoint without updating the cache (see forgets), after a
// rollback, and if another program writes.
type runCache map[cachedKey]*CachedRun

// Get returns what is known of a run, nil if nothing is.
func (r runCache) Get(agent int64, name string) *CachedRun { return r[cachedKey{agent, name}] }

// Put keeps a run of which everything is known.
func (r runCache) Put(c *CachedRun) {
	if len(r) >= cachedMost {
		r.ForgetAll()
	}
	r[cachedKey{c.Run.AgentID, c.Run.Name}] = c
}

func (r runCache) ForgetAll() { clear(r) }

func (r runCache) Forget(run *RunRow) { delete(r, cachedKey{run.AgentID, run.Name}) }

// The statements that change a run's history and update the run cache, or that change nothing that
// the cache knows: a new run is not in it.
const (
	insertAgent = `INSERT INTO agents (id, owner, name, uid, created_at, policy, policy_own, policy_at, recovery_keep_s, pre_operation_keep_s)
		VALUES (` + NextAgent + `, ?, ?, nullif(?, ''), ?, ?, ?, ?, ?, ?)`
	insertRun = `INSERT INTO runs (id, agent_id, name, life, started_at, updated_at, heartbeat_at, segment_at, epoch)
		VALUES (` + NextRun + `, ?1, ?2, ` + NextLife + `, ?3, ?3, ?3, ?3, max(1, coalesce(?4, 1)))`
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

// The statements that delete a checkpoint. They return the bytes of its row besides the state,
// unless these are known.
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

// forgets says whether a statement changes what the run cache knows without updating it.
func forgets(query string, tables []string) bool {
	return !slices.Contains(telling, query) && slices.ContainsFunc(tables, func(table string) bool { return slices.Contains(watching, table) })
}
