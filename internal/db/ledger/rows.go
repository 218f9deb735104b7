package ledger

import (
	"database/sql"
	"encoding/json"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

// RunRow is a run as the writer needs it.
type RunRow struct {
	ID            int64          `db:"id"`
	AgentID       int64          `db:"agent_id"`
	Name          string         `db:"name"`
	Status        ckpt.RunStatus `db:"status"`
	Epoch         int64          `db:"epoch"`
	Attempt       int64          `db:"attempt"`
	LastSeq       int64          `db:"last_seq"`
	BaseSeq       int64          `db:"base_seq"`
	Removed       int64          `db:"removed"`
	StoredBytes   int64          `db:"stored_bytes"`
	Head          ckpt.Ref       `db:"head"`
	ForkedFrom    ckpt.Ref       `db:"forked_from"`
	PID           sql.NullInt64  `db:"pid"`
	ProcessStart  ckpt.Ref       `db:"process_start"`
	BootID        ckpt.Ref       `db:"boot_id"`
	StartedAt     ckpt.Time      `db:"started_at"`
	UpdatedAt     ckpt.Time      `db:"updated_at"`
	EndedAt       ckpt.Time      `db:"ended_at"`
	SegmentAt     ckpt.Time      `db:"segment_at"`
	InterruptedAt ckpt.Time      `db:"interrupted_at"`
	HeartbeatAt   ckpt.Time      `db:"heartbeat_at"`
	AccumulatedMS int64          `db:"accumulated_ms"`
	HeartbeatMS   int64          `db:"heartbeat_timeout_ms"`
	ProgressMS    int64          `db:"progress_timeout_ms"`
	ProgressAt    ckpt.Time      `db:"progress_at"`
	Progress      *float64       `db:"progress"`
	LastEvent     int64          `db:"last_event"`
	Stretch       int64          `db:"stretch"`
	BackSeq       sql.NullInt64  `db:"back_seq"`
	Source        ckpt.Ref       `db:"source"`
}

const RunColumns = `id, agent_id, name, status, epoch, attempt, last_seq, base_seq, removed, stored_bytes, head, forked_from, pid,
	process_start, boot_id, started_at, updated_at, ended_at, segment_at, interrupted_at, heartbeat_at, accumulated_ms,
	heartbeat_timeout_ms, progress_timeout_ms, progress_at, progress, last_event, stretch, back_seq, source`

// AgentRow is an agent as the writer needs it.
type AgentRow struct {
	ID     int64  `db:"id"`
	Owner  string `db:"owner"`
	Name   string `db:"name"`
	Policy string `db:"policy"`     // what counts: all layers, merged
	Own    string `db:"policy_own"` // what it has set itself

	Settings ckpt.Policy
}

type AgentKey struct{ Owner, Name string }

// slotBits are for a checkpoint's number in its run, those above for the run's.
const slotBits = 32

// Slot is the row that a checkpoint of a run gets, unless it takes that of one that
// goes because of it.
func Slot(runID, seq int64) int64 { return runID<<slotBits | seq }

// HeldRow is a checkpoint as retention sees it.
type HeldRow struct {
	Slot       int64              `db:"slot"`
	N          int64              `db:"n"`
	ID         string             `db:"id"`
	Seq        int64              `db:"seq"`
	Kind       ckpt.Kind          `db:"kind"`
	CreatedAt  Lenient[ckpt.Time] `db:"created_at"` // where it is damaged the checkpoint has no age, and stays
	StoredSize int64              `db:"stored_size"`
	Pinned     bool               `db:"pinned"`
	Suspect    bool               `db:"suspect"`
	Operation  ckpt.Ref           `db:"operation"`
	Inline     bool               `db:"inline"` // known to stand in its row, without pieces
	StateOf    *int64             `db:"state_of"`
	Damaged    bool               `db:"damaged"`
	removed    bool               // its row is gone already
	Beside     int64              `db:"-"` // what its row takes beside the state; 0 where that is not known
}

const HeldColumns = `slot, n, id, seq, kind, created_at, stored_size, pinned, suspect, operation, pieces IS NULL AS inline, state_of,
	EXISTS (SELECT 1 FROM meta WHERE key = '` + damagedKey + `' || id) AS damaged`

// damagedKey begins the key under which the table meta says of a checkpoint
// that it did not read back intact. The value says why. Retention and resume
// must know it also where nobody watches for drift, so it is no finding.
const damagedKey = "damaged:"

// IsIntact is a condition on checkpoints: nothing is known to be wrong with it.
const IsIntact = `NOT EXISTS (SELECT 1 FROM meta WHERE key = '` + damagedKey + `' || id)`

// Parsed reads the stored policy over the defaults of today.
func (a *AgentRow) Parsed() (*AgentRow, error) {
	a.Settings = ckpt.PolicyToRead()
	if err := json.Unmarshal([]byte(a.Policy), &a.Settings); err != nil {
		return nil, ckpt.Wrap(ckpt.CodeCorrupt, err, "the stored policy of agent %s is damaged: set it again", a.Name)
	}
	a.Settings.Fill()
	return a, nil
}

const selectAgent = `SELECT id, owner, name, policy, policy_own FROM agents WHERE owner = ? AND name = ?`
