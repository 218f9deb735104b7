package ledger

import (
	"context"
	"database/sql"
	"encoding/json"
	"math"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db/sqlite"
	"github.com/ckptsidecar/ckptsidecar/internal/liveness"
)

// Run finds a run, nil if there is none.
func (tx *Tx) Run(agentID int64, name string) (*RunRow, error) {
	return tx.runWhere(`agent_id = ? AND name = ?`, agentID, name)
}

// RunOfLife finds a life of a run by its number, nil if it is not there.
func (tx *Tx) RunOfLife(agentID int64, base string, life int64) (*RunRow, error) {
	return tx.runWhere(`agent_id = ?1 AND `+LivesOf+` AND life = ?3`, agentID, base, life)
}

// RunOfRow finds the run of a row of a table, by the row's id, nil if it is gone.
func (tx *Tx) RunOfRow(table string, id any) (*RunRow, error) {
	return tx.runWhere(`id = (SELECT run_id FROM `+table+` WHERE id = ?)`, id)
}

func (tx *Tx) RunByID(id int64) (*RunRow, error) { return tx.runWhere(`id = ?`, id) }

func (tx *Tx) runWhere(condition string, args ...any) (*RunRow, error) {
	var row RunRow
	found, err := tx.Get(&row, `SELECT `+RunColumns+` FROM runs WHERE `+condition, args...)
	if err != nil || !found {
		return nil, err
	}
	tx.Store.WithBeat(&row)
	return &row, nil
}

// NextAgent and NextRun are the numbers of the next agent and run, as SQL. A number is never given
// twice, even if the agent or run that had it is gone: see the triggers agents_leave_their_number
// and runs_leave_their_number.
const (
	NextAgent = `(SELECT 1 + max(coalesce((SELECT max(id) FROM agents), 0), coalesce((SELECT CAST(value AS INTEGER) FROM meta
		WHERE key = 'last_agent'), 0)))`
	NextRun = `(SELECT 1 + max(coalesce((SELECT max(id) FROM runs), 0), coalesce((SELECT CAST(value AS INTEGER) FROM meta
		WHERE key = 'last_run'), 0)))`
	// NextLife is the number of the next life of a run, as SQL: ?1 is its agent, ?2 its name. The audit log
	// knows the lives that are gone.
	NextLife = `(SELECT 1 + max(coalesce((SELECT max(p.life) FROM agents a JOIN places p ON p.owner = a.owner AND p.agent = a.name
		WHERE a.id = ?1 AND p.run = ?2), 0), coalesce((SELECT max(life) FROM runs WHERE agent_id = ?1 AND ` + LivesOf + `), 0)))`
	// LivesOf is the condition that a row of runs is a life of the name ?2, as SQL.
	LivesOf = `(name = ?2 OR name > ?2 || '~' AND name < ?2 || char(127))`
)

// mostEpoch is the highest epoch that a writer may bring to a database that does not have its run.
const mostEpoch = 1 << 40

// SpendEpoch notes the epoch of a run that was in a replaced database. Its owner may still be alive, so no later
// owner of a run of its name may get that epoch.
func (tx *Tx) SpendEpoch(epoch int64) error {
	return tx.Insert(`INSERT INTO meta (key, value) VALUES ('spent_epoch', ?1) ON CONFLICT (key) DO UPDATE SET value = ?1
		WHERE CAST(value AS INTEGER) < ?1`, epoch)
}

// NextEpoch returns the epoch of the next owner of a run that has come to an epoch, 0 for a new run.
func (tx *Tx) NextEpoch(last int64) (int64, error) {
	var spent int64
	_, err := tx.Get(&spent, `SELECT CAST(value AS INTEGER) FROM meta WHERE key = 'spent_epoch'`)
	return max(last, spent) + 1, err
}

// MakeRun finds a run, or makes it if there is none. epoch is the epoch that the writer names: its run may be
// one of a database that was lost.
func (tx *Tx) MakeRun(agentID int64, name string, epoch *int64) (*RunRow, error) {
	row, err := tx.Run(agentID, name)
	if err != nil || row != nil {
		return row, err
	}
	if base := ckpt.BaseRun(name); base != name {
		return nil, ckpt.Errorf(ckpt.CodeNotFound, "run %s has no life %s: write to %s, the present one", base, name, base)
	}
	if epoch != nil && *epoch > mostEpoch {
		return nil, ckpt.Errorf(ckpt.CodeInvalid, "epoch %d does not exist: there is no run %s yet", *epoch, name)
	}
	if err := tx.Insert(insertRun, agentID, name, tx.Now, epoch); err != nil {
		return nil, err
	}
	return tx.Run(agentID, name)
}

// fence refuses a writer that names an older epoch than the run's: another process has taken the
// run over.
func (r *RunRow) fence(epoch *int64) error {
	switch {
	case epoch == nil || *epoch == r.Epoch:
		return nil
	case *epoch < r.Epoch:
		return ckpt.Errorf(ckpt.CodeFenced,
			"run %s was taken over: it is at epoch %d, this writer is of epoch %d; stop, or resume the run", r.Name, r.Epoch, *epoch)
	}
	return ckpt.Errorf(ckpt.CodeInvalid, "epoch %d does not exist: run %s is at epoch %d; if an older database was put back, resume the run",
		*epoch, r.Name, r.Epoch)
}

// LastSign is when the run's owner last showed that it is alive: by a heartbeat or by a write.
func (r *RunRow) LastSign() time.Time {
	if r.HeartbeatAt.IsZero() {
		return r.StartedAt.Time
	}
	return r.HeartbeatAt.Time
}

// LastProgress is when the progress that the run reports last grew.
func (r *RunRow) LastProgress() time.Time {
	if r.ProgressAt.IsZero() {
		return r.StartedAt.Time
	}
	return r.ProgressAt.Time
}

// SignOfLife notes that the owner wrote and is alive.
func (tx *Tx) SignOfLife(run *RunRow) error {
	return tx.Exec(updateSign, tx.Now, run.ID)
}

// Accumulated is the total time of all segments in milliseconds, the open one up to an instant.
func (r *RunRow) Accumulated(until time.Time) int64 {
	if r.SegmentAt.IsZero() || until.Before(r.SegmentAt.Time) {
		return r.AccumulatedMS
	}
	segment := until.Sub(r.SegmentAt.Time).Milliseconds()
	return r.AccumulatedMS + min(segment, math.MaxInt64-r.AccumulatedMS) // a run can claim any time before its first segment
}

// Process is the owner's process, as it was registered.
func (r *RunRow) Process() liveness.Process {
	return liveness.Process{PID: int(r.PID.Int64), Start: string(r.ProcessStart), Boot: string(r.BootID)}
}

// OwnerAlive says whether a run's owner must be taken for alive. A process that cannot be seen is, as
// long as it sends heartbeats: the monitor has already timed out runs without them.
func (s *Core) OwnerAlive(run *RunRow) bool {
	if run.Status != ckpt.RunRunning {
		return false
	}
	if run.PID.Valid {
		if state := s.Opt.Processes.Alive(run.Process()); state != liveness.Unknown {
			return state == liveness.Alive
		}
	}
	return run.HeartbeatMS > 0
}

// OwnerSeen says whether the process of a run's owner is seen to be alive.
func (s *Core) OwnerSeen(run *RunRow) bool {
	return run.PID.Valid && s.Opt.Processes.Alive(run.Process()) == liveness.Alive
}

func NoRun(agent, run string) error {
	return ckpt.Errorf(ckpt.CodeNotFound, "agent %s has no run %s: list its runs with ckptsidecar runs %s", agent, run, agent)
}

// OpenRun finds the run that a writer names, checks its epoch, and counts the write as a sign of
// life. It makes an agent or a run that does not exist.
func (s *Core) OpenRun(tx *Tx, sc ckpt.Scope, ref ckpt.RunRef) (*AgentRow, *RunRow, error) {
	agent, err := s.Agent(tx, sc.Whose(), ref.Agent)
	if err != nil {
		return nil, nil, err
	}
	var run *RunRow
	if agent != nil {
		if run, err = tx.Run(agent.ID, RunName(ref.Run)); err != nil {
			return nil, nil, err
		}
	}
	if run != nil {
		if err := s.MayWrite(run, sc, ref.Epoch); err != nil {
			return nil, nil, err
		}
	}
	if agent == nil {
		if agent, err = s.MakeAgent(tx, sc.Whose(), ref.Agent); err != nil {
			return nil, nil, err
		}
	}
	if run == nil {
		run, err = tx.MakeRun(agent.ID, RunName(ref.Run), ref.Epoch)
		return agent, run, err
	}
	return agent, run, s.Revive(tx, run, sc)
}

// MayWrite refuses a fenced writer and a write to a run that has ended.
func (s *Core) MayWrite(r *RunRow, sc ckpt.Scope, epoch *int64) error {
	if err := s.MayComplete(r, sc, epoch); err != nil {
		return err
	}
	if base := ckpt.BaseRun(r.Name); base != r.Name {
		return ckpt.Errorf(ckpt.CodeConflict, "%s is an earlier life of run %s, and stays as it ended: write to %s, the present one", r.Name, base, base)
	}
	if !r.EndedAt.IsZero() {
		return ckpt.Errorf(ckpt.CodeConflict, "run %s has ended (%s): resume it to start a new attempt, or name another run", r.Name, r.Status)
	}
	return nil
}

// MayComplete refuses a fenced writer. The run may have ended since it saved what the writer
// completes.
func (s *Core) MayComplete(r *RunRow, sc ckpt.Scope, epoch *int64) error {
	if err := s.OwnedHere(r); err != nil {
		return err
	}
	if err := r.fence(epoch); err != nil {
		return err
	}
	if epoch == nil && s.isLeftBehind(r, sc) {
		return ckpt.Errorf(ckpt.CodeFenced,
			"run %s is owned by process %d since %s, and process %d is older and unrelated: "+
				"stop, or resume the run; if both belong together, name epoch %d",
			r.Name, r.PID.Int64, r.SegmentAt, sc.PID, r.Epoch)
	}
	return r.mayOwn()
}

// isLeftBehind says whether a writer that names no epoch is a process from before the run's owner
// took it. The owner itself, its children, its parents, and processes that began later may write
// without an epoch, because hooks, shells and people do.
func (s *Core) isLeftBehind(r *RunRow, sc ckpt.Scope) bool {
	if !r.PID.Valid || r.Status != ckpt.RunRunning || r.SegmentAt.IsZero() || sc.PID <= 0 || int64(sc.PID) == r.PID.Int64 {
		return false
	}
	owner := r.Process()
	return s.Opt.Processes.Stranger(sc.PID, owner, r.SegmentAt.Time) && s.Opt.Processes.Alive(owner) == liveness.Alive
}

// mayOwn refuses to write to, or to resume, a run that is only observed: it has no owner, and
// nothing can be given back to its agent.
func (r *RunRow) mayOwn() error {
	if r.Source == "" {
		return nil
	}
	return ckpt.Errorf(ckpt.CodeConflict, "run %s is observed through OpenTelemetry and has no owner: register it first, or name another run", r.Name)
}

// Revive marks a run that was found dead as running again, because it writes. If another process
// writes, the owner is no longer known. That process may have the pid of the dead one, so the start
// time is compared too. A write from a spool is an old write and revives no run. A write after the
// owner's own end of the run does not revive it either: if the owner gave up waiting for a reply
// and then ended the run, the two may arrive in either order.
func (s *Core) Revive(tx *Tx, run *RunRow, sc ckpt.Scope) error {
	foundDead := !run.InterruptedAt.IsZero() && (run.Status == ckpt.RunInterrupted || run.Status == ckpt.RunTimedOut)
	if !foundDead || !sc.Spooled.IsZero() {
		return nil
	}
	tx.Touches(run)
	run.Status, run.SegmentAt = ckpt.RunRunning, tx.Now
	if run.PID.Valid && s.Opt.Processes.Identify(sc.PID) != run.Process() {
		run.PID, run.ProcessStart, run.BootID = sql.NullInt64{}, "", ""
	}
	return tx.Exec(`UPDATE runs SET status = 'running', segment_at = ?, pid = ?, process_start = ?, boot_id = ?, updated_at = ? WHERE id = ?`,
		run.SegmentAt, run.PID, run.ProcessStart, run.BootID, tx.Now, run.ID)
}

// ReadRun has the columns of a run that reads need.
type ReadRun struct {
	ckpt.Run
	ID          int64     `db:"id"`
	SegmentAt   ckpt.Time `db:"segment_at"`
	HeartbeatMS int64     `db:"heartbeat_timeout_ms"`
	ProgressMS  int64     `db:"progress_timeout_ms"`
	LastEvent   int64     `db:"last_event"`
	Waiting     ckpt.Ref  `db:"waiting"`
}

const (
	// ShownStatus is the status of run r as callers see it, as SQL.
	ShownStatus    = `CASE WHEN r.status = 'running' AND r.last_seq = 0 AND r.source IS NULL THEN 'starting' ELSE r.status END`
	readRunColumns = `r.id, a.name AS agent, a.owner, r.name AS run, r.life, r.workflow, ` + ShownStatus + ` AS status, r.epoch, r.attempt,
		coalesce(r.pid, 0) AS pid, r.parent_run, r.forked_from, r.started_at, r.updated_at, r.ended_at, r.accumulated_ms, r.goal, r.progress,
		r.continuation_prompt, r.external_session, r.command, r.waiting, r.labels, r.result, r.error, r.segment_at, r.heartbeat_timeout_ms,
		r.progress_timeout_ms, r.last_event, r.steps_ended, r.source, r.partial`
	readRunTables = ` FROM runs r JOIN agents a ON a.id = r.agent_id `
)

// Shown is the run as callers see it at an instant.
func (s *Core) Shown(r *ReadRun, now ckpt.Time) *ckpt.Run {
	run := r.Run
	run.WaitingPID = s.WaitingPID(r.Waiting)
	run.HeartbeatTimeout = ckpt.Duration(time.Duration(r.HeartbeatMS) * time.Millisecond)
	run.ProgressTimeout = ckpt.Duration(time.Duration(r.ProgressMS) * time.Millisecond)
	if !r.SegmentAt.IsZero() && now.After(r.SegmentAt.Time) {
		run.AccumulatedMS += now.Sub(r.SegmentAt.Time).Milliseconds()
	}
	return &run
}

// WaitingPID is the id of the process that waits for an answer, 0 if it is gone. waiting is what the column of that name has.
func (s *Core) WaitingPID(waiting ckpt.Ref) int {
	var p liveness.Process
	if waiting == "" || json.Unmarshal([]byte(waiting), &p) != nil || s.Opt.Processes.Alive(p) != liveness.Alive {
		return 0
	}
	return p.PID
}

// ShownRun reads a run as this transaction has left it.
func (tx *Tx) ShownRun(id int64) (*ckpt.Run, error) {
	var row ReadRun
	if _, err := tx.Get(&row, `SELECT `+readRunColumns+readRunTables+`WHERE r.id = ?`, id); err != nil {
		return nil, err
	}
	return tx.Store.Shown(&row, tx.Now), nil
}

// Run reads one run.
func (s *Core) Run(ctx context.Context, sc ckpt.Scope, ref ckpt.RunRef) (*ckpt.Run, error) {
	row, err := s.FindRun(ctx, sc, ref)
	if err != nil {
		return nil, err
	}
	s.AuditRead(sc, "read_run", ref.Agent, "")
	run := s.Shown(row, ckpt.At(s.Opt.Now()))
	run.PIDHere = s.Opt.Processes.Here(sc.PID, run.PID)
	return run, nil
}

// FindRun finds a run for a read.
func (s *Core) FindRun(ctx context.Context, sc ckpt.Scope, ref ckpt.RunRef) (*ReadRun, error) {
	if err := ref.Check(); err != nil {
		return nil, err
	}
	agent, err := s.FindAgent(ctx, sc, ref.Agent)
	if err != nil {
		return nil, err
	}
	var row ReadRun
	err = s.RO.GetContext(ctx, &row, `SELECT `+readRunColumns+readRunTables+`WHERE r.agent_id = ? AND r.name = ?`, agent.ID, RunName(ref.Run))
	if IsNoRows(err) {
		return nil, NoRun(ref.Agent, RunName(ref.Run))
	}
	return &row, sqlite.ReadError(err)
}

// RunWithAgent finds a run by its row id, nil if it is gone.
func (s *Core) RunWithAgent(tx *Tx, id int64) (*RunRow, *AgentRow, error) {
	run, err := tx.RunByID(id)
	if err != nil || run == nil {
		return nil, nil, err
	}
	var key struct {
		Owner string `db:"owner"`
		Name  string `db:"name"`
	}
	if _, err := tx.Get(&key, `SELECT owner, name FROM agents WHERE id = ?`, run.AgentID); err != nil {
		return nil, nil, err
	}
	agent, err := s.Agent(tx, key.Owner, key.Name)
	return run, agent, err
}

// ForkWithout is the checkpoint that a fork began with, as long as the fork has no checkpoint of
// its own.
func ForkWithout(run *RunRow) ckpt.Ref {
	if run.LastSeq > 0 {
		return ""
	}
	return run.ForkedFrom
}
