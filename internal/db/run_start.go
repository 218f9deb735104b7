package db

import (
	"cmp"
	"context"
	"fmt"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db/driftlog"
	"github.com/ckptsidecar/ckptsidecar/internal/db/ledger"
	"github.com/ckptsidecar/ckptsidecar/internal/db/saves"
	"github.com/ckptsidecar/ckptsidecar/internal/liveness"
)

// StartRun registers a run: its owner, its timeouts, its purpose. It adopts a run that its saves
// have created. A run that has ended starts from the beginning. An unfinished run must be resumed
// instead.
func (s *Store) StartRun(_ context.Context, sc ckpt.Scope, r ckpt.RunRequest) (*ckpt.Run, bool, error) {
	if err := r.Check(); err != nil {
		return nil, false, err
	}
	c := s.Screen(sc, r.Agent, "run")
	c.Ref("workflow", &r.Workflow)
	c.Ref("goal", &r.Goal)
	c.Ref("external_session", &r.ExternalSession)
	c.Labels(&r.Labels)
	c.Text("reason", &r.Reason)
	if c.Again(r.Check); c.Err != nil {
		return nil, false, c.Err
	}
	e := ledger.Entry(sc, "start_run", r.Agent)
	e.Run = ledger.RunName(r.Run)
	if r.Reason != "" {
		e.Reason = r.Reason
	}
	return driftlog.Keyed(s.Drifts, sc, driftlog.KeyedRequest{
		Agent: r.Agent, Key: r.IdempotencyKey, Print: r, Entry: e, Make: true, Secrets: c.Found,
	}, func(tx *ledger.Tx, agent *ledger.AgentRow) (*ckpt.Run, error) {
		return s.startRun(tx, sc, agent, r, e)
	})
}

func (s *Store) startRun(tx *ledger.Tx, sc ckpt.Scope, agent *ledger.AgentRow, r ckpt.RunRequest, e ledger.AuditEntry) (*ckpt.Run, error) {
	owner := s.owner(sc, r.PID)
	run, err := tx.Run(agent.ID, ledger.RunName(r.Run))
	if err != nil {
		return nil, err
	}
	if run != nil && claimedBy(run, &r) { // what the request does not name stays
		if r.PID == 0 {
			owner = run.Process()
		}
		r.HeartbeatTimeout = cmp.Or(r.HeartbeatTimeout, new(timeout(run.HeartbeatMS)))
		r.ProgressTimeout = cmp.Or(r.ProgressTimeout, new(timeout(run.ProgressMS)))
	}
	if run != nil {
		if err := s.mayStart(run, owner, &r); err != nil {
			return nil, err
		}
	}
	if err := checkFork(tx, agent, run, r.ForkFrom); err != nil {
		return nil, err
	}
	if run == nil {
		if run, err = tx.MakeRun(agent.ID, ledger.RunName(r.Run), nil); err != nil {
			return nil, err
		}
		if run.Epoch, err = tx.NextEpoch(0); err != nil {
			return nil, err
		}
	}
	if !run.EndedAt.IsZero() {
		if err := mayLeave(tx, agent.Name, run, r.LeaveUncertain, "run "+run.Name+" cannot begin anew", &e); err != nil {
			return nil, err
		}
		if run, err = s.newLife(tx, agent, run, ckpt.RunRunning); err != nil {
			return nil, err
		}
	}
	if err := s.DeclareGoal(tx, agent, run, r.Goal, e); err != nil {
		return nil, err
	}
	if err := ownRun(tx, agent, run, owner, r.HeartbeatTimeout, r.ProgressTimeout); err != nil {
		return nil, err
	}
	err = tx.Update(`UPDATE runs SET status = 'running', workflow = coalesce(?, workflow), parent_run = coalesce(?, parent_run),
		external_session = coalesce(?, external_session), labels = CASE WHEN ?4 = '{}' THEN labels ELSE ?4 END,
		forked_from = coalesce(?5, forked_from),
		head = coalesce(?5, head), accumulated_ms = coalesce(?6, accumulated_ms), source = NULL, epoch = ?8 WHERE id = ?7`,
		r.Workflow, r.ParentRun, r.ExternalSession, r.Labels, r.ForkFrom, r.AccumulatedMS, run.ID, run.Epoch)
	if err != nil {
		return nil, err
	}
	if r.Goal != "" || len(r.Labels) > 0 {
		if err := tx.IndexRun(run.ID); err != nil {
			return nil, err
		}
	}
	if e.Detail == nil {
		e.Detail = map[string]any{}
	}
	e.Detail["pid"] = owner.PID
	e.States(ckpt.RunRunning, run.Epoch)
	if err := tx.Audit(e); err != nil {
		return nil, err
	}
	return tx.ShownRun(run.ID)
}

// owner is the process that becomes the owner of a run. If the request names no process, the owner
// is unknown: a caller that uses curl or a script ends before the run does. The number is one of the
// caller's process namespace; if the process cannot be found here, the owner is unknown too. A pid of
// this namespace that names no process stands for the caller.
//
// A process of another user also stands for the caller, unless an administrator names it. Otherwise
// a user could name any process, and so make a run look alive forever, or learn when another user's
// process ends.
func (s *Store) owner(sc ckpt.Scope, pid int) liveness.Process {
	if pid == 0 {
		return liveness.Process{}
	}
	p := s.Opt.Processes.Named(sc.PID, pid)
	if p.PID == 0 || p.PID == sc.PID {
		return p
	}
	if whose := s.Opt.Processes.Owner(p.PID); p.Start == "" || !sc.Admin && whose != "" && whose != sc.Caller.Owner {
		return s.Opt.Processes.Identify(sc.PID)
	}
	return p
}

// mayStart refuses to begin a run that another process owns or that is unfinished. Its owner may say
// again what it is for. The owner is known by its process, or by the epoch that it has claimed.
func (s *Store) mayStart(run *ledger.RunRow, owner liveness.Process, r *ckpt.RunRequest) error {
	if err := s.OwnedHere(run); err != nil {
		return err
	}
	switch {
	case !run.EndedAt.IsZero(), run.Status == ckpt.RunRunning && !run.PID.Valid && run.HeartbeatMS == 0,
		run.Status == ckpt.RunRunning && run.PID.Valid && run.Process() == owner,
		claimedBy(run, r):
		return nil
	case s.OwnerAlive(run):
		return ckpt.Errorf(ckpt.CodeConflict,
			"run %s has an owner that is %s: name another run, or resume it with force", run.Name, s.lifeOfOwner(run))
	}
	return ckpt.Errorf(ckpt.CodeConflict, "run %s was left unfinished (%s): resume it, so that nothing is done twice", run.Name, run.Status)
}

// claimedBy reports whether the caller shows by its epoch that it has claimed the run, which is still
// running.
func claimedBy(run *ledger.RunRow, r *ckpt.RunRequest) bool {
	return run.Status == ckpt.RunRunning && run.EndedAt.IsZero() && r.Epoch != nil && *r.Epoch == run.Epoch
}

func timeout(ms int64) ckpt.Duration { return ckpt.Duration(ms) * ckpt.Duration(time.Millisecond) }

// lifeOfOwner says what is known of the life of an owner that is taken for alive, and what shows it.
func (s *Store) lifeOfOwner(run *ledger.RunRow) string {
	if s.OwnerSeen(run) {
		return fmt.Sprintf("alive (process %d)", run.PID.Int64)
	}
	return "not known to be dead (its process cannot be seen, and it sends heartbeats)"
}

// checkFork refuses a fork from a checkpoint that is not this agent's, or into a run that has
// checkpoints of its own.
func checkFork(tx *ledger.Tx, agent *ledger.AgentRow, run *ledger.RunRow, from ckpt.Ref) error {
	if from == "" {
		return nil
	}
	if run != nil && run.LastSeq > 0 {
		return ckpt.Errorf(ckpt.CodeConflict, "run %s has checkpoints of its own: fork into a new run", run.Name)
	}
	if run != nil && run.ForkedFrom != "" && run.ForkedFrom != from && run.EndedAt.IsZero() {
		return ckpt.Errorf(ckpt.CodeConflict, "run %s is a fork of %s already: fork into another run", run.Name, run.ForkedFrom)
	}
	return saves.CheckParent(tx, agent, string(from))
}

// ownRun gives a run its owner and its timeouts: those of the request, else those of the agent's
// policy.
func ownRun(tx *ledger.Tx, agent *ledger.AgentRow, run *ledger.RunRow, owner liveness.Process, heartbeat, progress *ckpt.Duration) error {
	beat, grow := agent.Settings.HeartbeatTimeout, agent.Settings.ProgressTimeout
	if heartbeat != nil {
		beat = *heartbeat
	}
	if progress != nil {
		grow = *progress
	}
	var pid any
	if owner.PID > 0 {
		pid = owner.PID
	}
	segment := run.SegmentAt
	if segment.IsZero() || run.LastSeq == 0 {
		segment = tx.Now
	}
	return tx.Exec(`UPDATE runs SET pid = ?, process_start = ?, boot_id = ?, heartbeat_timeout_ms = ?, progress_timeout_ms = ?,
		heartbeat_at = ?, progress_at = ?, segment_at = ?, updated_at = ? WHERE id = ?`, pid, ckpt.Ref(owner.Start), ckpt.Ref(owner.Boot),
		time.Duration(beat).Milliseconds(), time.Duration(grow).Milliseconds(), tx.Now, tx.Now, segment, tx.Now, run.ID)
}
