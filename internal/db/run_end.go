package db

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db/driftlog"
	"github.com/ckptsidecar/ckptsidecar/internal/db/ledger"
	"github.com/ckptsidecar/ckptsidecar/internal/db/saves"
	"github.com/ckptsidecar/ckptsidecar/internal/db/sqlite"
	"github.com/ckptsidecar/ckptsidecar/internal/liveness"
	"github.com/ckptsidecar/ckptsidecar/internal/wellformed"
)

// reviveFor takes a heartbeat as proof that the process that it names is alive. If that process has
// ended, the heartbeat says only when it was last alive.
func (s *Store) reviveFor(tx *ledger.Tx, run *ledger.RunRow, sc ckpt.Scope, pid int) error {
	if pid != 0 {
		if int64(pid) != run.PID.Int64 { // who repeats the number that the daemon has told means the owner
			pid = s.owner(sc, pid).PID
		}
		sc.PID = pid
		if !run.InterruptedAt.IsZero() && pid != 0 && s.Opt.Processes.Alive(s.Opt.Processes.Identify(pid)) == liveness.Dead {
			return nil
		}
	}
	return s.Revive(tx, run, sc)
}

// isStuck says that a run timed out for lack of progress, which its heartbeats do not change.
func isStuck(r *ledger.RunRow, now time.Time) bool {
	return r.Status == ckpt.RunTimedOut && r.ProgressMS > 0 && now.Sub(r.LastProgress()) >= time.Duration(r.ProgressMS)*time.Millisecond
}

// needRun returns the run that a writer names, which must exist and must not have ended.
func (s *Store) needRun(tx *ledger.Tx, sc ckpt.Scope, ref ckpt.RunRef) (*ledger.RunRow, error) {
	_, run, err := s.knownRun(tx, sc, ref)
	if err != nil {
		return nil, err
	}
	return run, s.MayWrite(run, sc, ref.Epoch)
}

// knownRun returns the run of a name and its agent. Both must exist.
func (s *Store) knownRun(tx *ledger.Tx, sc ckpt.Scope, ref ckpt.RunRef) (*ledger.AgentRow, *ledger.RunRow, error) {
	agent, err := s.NeedAgent(tx, sc, ref.Agent)
	if err != nil {
		return nil, nil, err
	}
	run, err := tx.Run(agent.ID, ledger.RunName(ref.Run))
	if err == nil && run == nil {
		err = ledger.NoRun(ref.Agent, ledger.RunName(ref.Run))
	}
	return agent, run, err
}

// noteProgress notes the progress that a run reports, and when it last grew.
func noteProgress(tx *ledger.Tx, run *ledger.RunRow, progress *float64) error {
	if progress == nil {
		return nil
	}
	if run.Progress == nil || *progress > *run.Progress {
		run.ProgressAt = tx.Now
	}
	run.Progress = progress
	return tx.Exec(ledger.UpdateProgress, run.Progress, run.ProgressAt, run.ID)
}

// EndRun ends a run for good (completed, failed), or its current segment.
func (s *Store) EndRun(ctx context.Context, sc ckpt.Scope, ref ckpt.RunRef, r ckpt.EndRequest) (*ckpt.Run, bool, error) {
	if err := ref.Check(); err != nil {
		return nil, false, err
	}
	if err := wellformed.RunEnd(&r); err != nil {
		return nil, false, err
	}
	c := s.Screen(sc, ref.Agent, "run")
	c.Ref("continuation_prompt", &r.ContinuationPrompt)
	c.Ref("error", &r.Error)
	c.JSON("result", &r.Result)
	if c.Again(func() error { return wellformed.RunEnd(&r) }); c.Err != nil {
		return nil, false, c.Err
	}
	ref.Epoch = r.Epoch
	c.Text("reason", &r.Reason)
	if c.Err != nil {
		return nil, false, c.Err
	}
	e := ledger.Entry(sc, "end_run", ref.Agent)
	e.Run, e.Reason, e.Detail = ledger.RunName(ref.Run), r.Reason, map[string]any{"status": r.Status}
	var final *saves.Save
	room := sqlite.Frees // because retention may remove checkpoints
	if len(r.State) > 0 {
		var err error
		if final, err = s.NewSave(ctx, sc, &ckpt.SaveRequest{Agent: ref.Agent, Run: ref.Run, Kind: ckpt.KindRoutine,
			ContentType: ckpt.ContentTypeJSON, State: r.State}); err != nil {
			return nil, false, err
		}
		defer final.Leave()
		room = sqlite.Adds
	}
	return driftlog.Keyed(s.Drifts, sc, driftlog.KeyedRequest{
		Agent: ref.Agent, Key: r.IdempotencyKey, Print: r, Size: int64(len(r.State) + len(r.Result) + len(r.Error)),
		Entry: e, Claim: room, Drift: true, Secrets: c.Found,
	}, func(tx *ledger.Tx, agent *ledger.AgentRow) (*ckpt.Run, error) {
		run, err := s.needRun(tx, sc, ref)
		if err != nil {
			return nil, err
		}
		tx.Touches(run)
		if !r.Status.Resumable() {
			because := fmt.Sprintf("run %s cannot end as %s", run.Name, r.Status)
			if err := mayLeave(tx, agent.Name, run, r.LeaveUncertain, because, &e); err != nil {
				return nil, err
			}
		}
		if final != nil {
			if err := s.Admit(tx, final, run, nil); err != nil {
				return nil, err
			}
			if _, err := s.Take(tx, final, agent, run); err != nil {
				return nil, err
			}
		}
		if err := s.endRun(tx, agent, run, r); err != nil {
			return nil, err
		}
		e.States(run.Status, run.Epoch)
		if err := tx.Audit(e); err != nil {
			return nil, err
		}
		return tx.ShownRun(run.ID)
	})
}

func (s *Store) endRun(tx *ledger.Tx, agent *ledger.AgentRow, run *ledger.RunRow, r ckpt.EndRequest) error {
	if err := s.leaveOpen(tx, agent, run, "its run ended as "+string(r.Status)+" before it did"); err != nil {
		return err
	}
	var ended ckpt.Time
	if !r.Status.Resumable() {
		ended = tx.Now
		if err := s.withdrawPrompts(tx, run); err != nil {
			return err
		}
	}
	run.AccumulatedMS = run.Accumulated(tx.Now.Time)
	run.Status, run.EndedAt, run.SegmentAt, run.InterruptedAt = r.Status, ended, ckpt.Time{}, ckpt.Time{}
	run.PID, run.UpdatedAt = sql.NullInt64{}, tx.Now
	return tx.Update(`UPDATE runs SET status = ?, ended_at = ?, accumulated_ms = ?, segment_at = NULL, interrupted_at = NULL,
		pid = NULL, continuation_prompt = ?, error = ?, result = ?, updated_at = ?
		WHERE id = ?`, string(r.Status), ended, run.AccumulatedMS, r.ContinuationPrompt, r.Error, r.Result, tx.Now, run.ID)
}

// leaveOpen marks the steps and operations that the owner left open, because it is not known how
// they ended. evidence says what is known.
func (s *Store) leaveOpen(tx *ledger.Tx, agent *ledger.AgentRow, run *ledger.RunRow, evidence string) error {
	err := tx.Fill(`UPDATE steps SET status = 'interrupted', ended_at = ? WHERE run_id = ? AND status = 'started'`, tx.Now, run.ID)
	if err != nil {
		return err
	}
	rows, err := unresolved(tx, run)
	for i := range rows {
		if err == nil && rows[i].Status == ckpt.OperationOpen {
			err = s.becomeUncertain(tx, agent, run, &rows[i], ckpt.Ref(evidence))
		}
	}
	return err
}

// interruptRun ends a segment without a message from its owner, at its last sign of life.
func (s *Store) interruptRun(tx *ledger.Tx, agent *ledger.AgentRow, run *ledger.RunRow, status ckpt.RunStatus, evidence string) error {
	if err := s.leaveOpen(tx, agent, run, evidence); err != nil {
		return err
	}
	run.AccumulatedMS = run.Accumulated(run.LastSign())
	run.Status, run.SegmentAt, run.InterruptedAt = status, ckpt.Time{}, tx.Now
	return tx.Exec(`UPDATE runs SET status = ?, accumulated_ms = ?, segment_at = NULL, interrupted_at = ?, updated_at = ? WHERE id = ?`,
		string(status), run.AccumulatedMS, tx.Now, tx.Now, run.ID)
}
