package db

import (
	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db/ledger"
)

// newLife begins a run anew under the same name, with nothing: the life before becomes history. It
// keeps all that it has, and is called main~1 from now on; the life before it becomes main~2. The
// new life has another epoch, so older writers are fenced. Events count on, so that nobody who reads
// on from the number of an event misses one.
//
// The run of a LangGraph thread goes on instead, because its graph does.
func (s *Store) newLife(tx *ledger.Tx, agent *ledger.AgentRow, old *ledger.RunRow, status ckpt.RunStatus) (*ledger.RunRow, error) {
	var thread bool
	if _, err := tx.Get(&thread, `SELECT EXISTS (SELECT 1 FROM graph_threads WHERE run_id = ?)`, old.ID); err != nil {
		return nil, err
	}
	if thread {
		return reopen(tx, old)
	}
	if err := s.endLife(tx, agent, old); err != nil {
		return nil, err
	}
	name := old.Name
	if err := shiftLives(tx, old); err != nil {
		return nil, err
	}
	var was struct {
		Workflow, Goal, Labels, Command ckpt.Ref
		Parent                          ckpt.Ref `db:"parent_run"`
	}
	if _, err := tx.Get(&was, `SELECT workflow, goal, labels, command, parent_run FROM runs WHERE id = ?`, old.ID); err != nil {
		return nil, err
	}
	epoch, err := tx.NextEpoch(old.Epoch)
	if err != nil {
		return nil, err
	}
	attempt, segment := old.Attempt, ckpt.Time{}
	if status == ckpt.RunRunning {
		attempt, segment = attempt+1, tx.Now
	}
	err = tx.Insert(`INSERT INTO runs (id, agent_id, name, life, status, epoch, attempt, started_at, updated_at, heartbeat_at, segment_at, last_event,
		heartbeat_timeout_ms, progress_timeout_ms, workflow, goal, labels, command, parent_run)
		VALUES (`+ledger.NextRun+`, ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?7, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16)`,
		agent.ID, name, old.Life+1, string(status), epoch, attempt, tx.Now, segment, old.LastEvent,
		old.HeartbeatMS, old.ProgressMS, was.Workflow, was.Goal, was.Labels, was.Command, was.Parent)
	if err != nil {
		return nil, err
	}
	run, err := tx.Run(agent.ID, name)
	if err != nil {
		return nil, err
	}
	return run, tx.IndexRun(run.ID)
}

// endLife ends the present life of a run for good. One that had not ended yet failed: a person
// decided that it begins anew.
func (s *Store) endLife(tx *ledger.Tx, agent *ledger.AgentRow, run *ledger.RunRow) error {
	if run.EndedAt.IsZero() {
		if err := s.leaveOpen(tx, agent, run, "its run was begun anew before it did"); err != nil {
			return err
		}
		if err := s.withdrawPrompts(tx, run); err != nil {
			return err
		}
		was := run.Status
		run.AccumulatedMS = run.Accumulated(tx.Now.Time)
		err := tx.Exec(`UPDATE runs SET status = 'failed', ended_at = ?1, updated_at = ?1, accumulated_ms = ?2, segment_at = NULL, interrupted_at = NULL,
			pid = NULL, error = coalesce(error, ?3) WHERE id = ?4`, tx.Now, run.AccumulatedMS, "begun anew while it was "+string(was), run.ID)
		if err != nil {
			return err
		}
	}
	return s.EndStretch(tx, run)
}

// shiftLives gives each life of a run its next name, the oldest first: main~1 becomes main~2, and
// main becomes main~1.
func shiftLives(tx *ledger.Tx, run *ledger.RunRow) error {
	var ids []int64
	if err := tx.List(&ids, `SELECT id FROM runs WHERE agent_id = ?1 AND `+ledger.LivesOf+` ORDER BY ago DESC`, run.AgentID, run.Name); err != nil {
		return err
	}
	for _, id := range ids {
		if err := tx.Exec(`UPDATE runs SET name = base || '~' || (ago + 1) WHERE id = ?`, id); err != nil {
			return err
		}
	}
	tx.ForgetRuns()
	run.Name = ckpt.LifeName(run.Name, 1)
	return nil
}

// reopen lets the run of a LangGraph thread that has ended go on.
func reopen(tx *ledger.Tx, run *ledger.RunRow) (*ledger.RunRow, error) {
	if run.EndedAt.IsZero() {
		return nil, ckpt.Errorf(ckpt.CodeConflict, "run %s is a thread of LangGraph, whose graph goes on from the checkpoints of the thread: "+
			"resume the run, or delete the thread to begin with nothing", run.Name)
	}
	epoch, err := tx.NextEpoch(run.Epoch)
	if err != nil {
		return nil, err
	}
	err = tx.Exec(`UPDATE runs SET status = 'running', ended_at = NULL, epoch = ?1, attempt = attempt + 1, segment_at = ?2, interrupted_at = NULL,
		result = NULL, error = NULL, updated_at = ?2 WHERE id = ?3`, epoch, tx.Now, run.ID)
	if err != nil {
		return nil, err
	}
	return tx.RunByID(run.ID)
}
