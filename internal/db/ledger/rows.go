package ledger

import (
	"database/sql"
	"encoding/json"
	"strconv"
	"strings"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

// RunRow has the columns of a run that the writer needs.
type RunRow struct {
	ID            int64          `db:"id"`
	AgentID       int64          `db:"agent_id"`
	Name          string         `db:"name"` // main~2 for the second life before
	Life          int64          `db:"life"`
	Status        ckpt.RunStatus `db:"status"`
	Epoch         int64          `db:"epoch"`
	Attempt       int64          `db:"attempt"`
	LastSeq       int64          `db:"last_seq"`
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

// Ago is how many lives of the run began since this one: 0 for the present life.
func (r *RunRow) Ago() int {
	_, ago, _ := strings.Cut(r.Name, "~")
	n, _ := strconv.Atoi(ago)
	return n
}

const RunColumns = `id, agent_id, name, life, status, epoch, attempt, last_seq, removed, stored_bytes, head, forked_from, pid,
	process_start, boot_id, started_at, updated_at, ended_at, segment_at, interrupted_at, heartbeat_at, accumulated_ms,
	heartbeat_timeout_ms, progress_timeout_ms, progress_at, progress, last_event, stretch, back_seq, source`

// AgentRow has the columns of an agent that the writer needs.
type AgentRow struct {
	ID     int64  `db:"id"`
	Owner  string `db:"owner"`
	Name   string `db:"name"`
	Policy string `db:"policy"`     // the policy that counts: all layers, merged
	Own    string `db:"policy_own"` // what the agent sets itself

	Settings ckpt.Policy
}

type AgentKey struct{ Owner, Name string }

// slotBits is how many bits hold a checkpoint's number in its run; the bits above hold the run's
// number.
const slotBits = 32

// MaxSeq is the highest number that a checkpoint of a run can have. A higher one would reach into
// the rows of another run.
const MaxSeq = 1<<slotBits - 1

// Slot is the row that a checkpoint of a run gets, unless it takes the row of a checkpoint that is
// removed because of it.
func Slot(runID, seq int64) int64 { return runID<<slotBits | seq }

// RunOf is the run of a slot.
func RunOf(slot int64) int64 { return slot >> slotBits }

// HeldRow has the columns of a checkpoint that retention needs.
type HeldRow struct {
	Slot       int64              `db:"slot"`
	N          int64              `db:"n"`
	ID         string             `db:"id"`
	Seq        int64              `db:"seq"`
	Kind       ckpt.Kind          `db:"kind"`
	CreatedAt  Lenient[ckpt.Time] `db:"created_at"` // if damaged, the checkpoint has no age and stays
	StoredSize int64              `db:"stored_size"`
	Pinned     bool               `db:"pinned"`
	Suspect    bool               `db:"suspect"`
	Operation  ckpt.Ref           `db:"operation"`
	Inline     bool               `db:"inline"` // known to have its state in its row, without pieces
	StateOf    *int64             `db:"state_of"`
	Damaged    bool               `db:"damaged"`
	Released   bool               `db:"released"` // the operation that it was taken for has succeeded
	removed    bool               // its row is already deleted
	Beside     int64              `db:"-"` // bytes of its row besides the state; 0 if unknown
}

const HeldColumns = `slot, n, id, seq, kind, created_at, stored_size, pinned, suspect, operation, pieces IS NULL AS inline, state_of,
	EXISTS (SELECT 1 FROM meta WHERE key = '` + damagedKey + `' || id) AS damaged,
	kind = 'pre_operation' AND EXISTS (SELECT 1 FROM operations o WHERE o.run_id = slot >> 32 AND o.key = operation AND o.status = 'succeeded') AS released`

// damagedKey is the prefix of the key in the table meta that says that a checkpoint did not read
// back intact. The value says why. It is no finding, because retention and resume must know it even
// if drift is not watched.
const damagedKey = "damaged:"

// IsIntact is the condition that a checkpoint is not known to be damaged.
const IsIntact = `NOT EXISTS (SELECT 1 FROM meta WHERE key = '` + damagedKey + `' || id)`

// Parsed reads the stored policy over today's defaults.
func (a *AgentRow) Parsed() (*AgentRow, error) {
	a.Settings = ckpt.PolicyToRead()
	if err := json.Unmarshal([]byte(a.Policy), &a.Settings); err != nil {
		return nil, ckpt.Wrap(ckpt.CodeCorrupt, err, "the stored policy of agent %s is damaged: set it again", a.Name)
	}
	a.Settings.Fill()
	return a, nil
}

const selectAgent = `SELECT id, owner, name, policy, policy_own FROM agents WHERE owner = ? AND name = ?`
