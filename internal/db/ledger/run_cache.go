package ledger

import (
	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db/blob"
	"github.com/ckptsidecar/ckptsidecar/internal/db/usage"
)

// CachedRun is what the next save of a run must know, as it is on disk. It spares a save five
// queries. Only the writer uses it.
type CachedRun struct {
	Run    RunRow            // only the columns that saves read or change
	Rows   []HeldRow         // the rows that are Pushable, newest first
	Needed map[string]string // the checkpoints that operations, prompts and forks need, by id
	Graph  bool              // it is a LangGraph thread: rows in other tables name those of its checkpoints
	HeadN  int64             // the row of the save of Run.Head; 0 if that is gone
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

// runCache has the runs that are being saved. After each operation, the writer forgets the runs that the operation has changed (see
// Tx.Touches). It forgets all after a rollback, and if another program writes. A save keeps its own run up to date.
type runCache map[cachedKey]*CachedRun

// Get returns what is known of a run, nil if nothing is.
func (r runCache) Get(agent int64, name string) *CachedRun { return r[cachedKey{agent, name}] }

// Put keeps a run that is running and has few checkpoints. A run whose rollback target is kept for suspected drift is read each time.
func (r runCache) Put(c *CachedRun) {
	if c.Run.Status != ckpt.RunRunning || c.Run.BackSeq.Valid || len(c.Rows) > CachedRowsMost {
		r.Forget(&c.Run)
		return
	}
	if len(r) >= cachedMost {
		r.ForgetAll()
	}
	r[cachedKey{c.Run.AgentID, c.Run.Name}] = c
}

func (r runCache) ForgetAll() { clear(r) }

func (r runCache) Forget(run *RunRow) { delete(r, cachedKey{run.AgentID, run.Name}) }

// The statements of the path of a save.
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
