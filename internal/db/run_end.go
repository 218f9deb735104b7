package db

import (
	"context"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db/sqlite"
	"github.com/ckptsidecar/ckptsidecar/internal/wellformed"
)

// Beat takes a heartbeat. It makes no audit row: it says nothing that the next
// write or the lack of one would not. One that an administrator sends for another
// owner makes a row once a minute, since its answer shows the run.
func (s *Store) Beat(_ context.Context, sc ckpt.Scope, ref ckpt.RunRef, b ckpt.Heartbeat) (*ckpt.Run, error) {
	if err := ref.Check(); err != nil {
		return nil, err
	}
	if err := b.Check(); err != nil {
		return nil, err
	}
	ref.Epoch = b.Epoch
	s.auditFollowing(sc, "beat", ref.Agent)
	past := s.readAheadFor(sc, ref)
	var shown *ckpt.Run
	err := s.write(&op{owner: sc.Caller.Owner, claim: sqlite.GoesOn, apply: func(tx *tx) error {
		agent, run, err := s.knownRun(tx, sc, ref)
		if err == nil {
			err = run.mayWrite(ref.Epoch)
		}
		if err != nil {
			return err
		}
		w, err := s.watchRun(tx, agent, run, past)
		if err != nil {
			return err
		}
		stuck := isStuck(run, tx.now.Time)
		if err := noteProgress(tx, run, b.Progress); err != nil {
			return err
		}
		if !stuck || !isStuck(run, tx.now.Time) { // to beat is not to progress
			speaker := sc
			if b.PID != 0 {
				speaker.PID = b.PID
			}
			if err := s.revive(tx, run, speaker); err != nil {
				return err
			}
		}
		if err := tx.exec(updateBeat, tx.now, run.ID); err != nil {
			return err
		}
		if err := s.watchBeat(tx, agent, run, w, b.Progress); err != nil {
			return err
		}
		if shown, err = tx.shownRun(run.ID); err != nil {
			return err
		}
		shown.Drift, err = s.verdict(tx, run, w)
		return err
	}})
	return shown, err
}

// stuck says that a run was given up for its lack of progress, which its
// heartbeats do not mend.
func isStuck(r *runRow, now time.Time) bool {
	return r.Status == ckpt.RunTimedOut && r.ProgressMS > 0 && now.Sub(r.lastProgress()) >= time.Duration(r.ProgressMS)*time.Millisecond
}

// needRun is the run that a writer names, which must be there and not over.
func (s *Store) needRun(tx *tx, sc ckpt.Scope, ref ckpt.RunRef) (*runRow, error) {
	_, run, err := s.knownRun(tx, sc, ref)
	if err != nil {
		return nil, err
	}
	return run, run.mayWrite(ref.Epoch)
}

// knownRun is the run of a name and its agent, which must be there.
func (s *Store) knownRun(tx *tx, sc ckpt.Scope, ref ckpt.RunRef) (*agentRow, *runRow, error) {
	agent, err := s.needAgent(tx, sc, ref.Agent)
	if err != nil {
		return nil, nil, err
	}
	run, err := tx.run(agent.ID, runName(ref.Run))
	if err == nil && run == nil {
		err = noRun(ref.Agent, runName(ref.Run))
	}
	return agent, run, err
}

// progress notes how far a run says it has come, and when that last grew.
func noteProgress(tx *tx, run *runRow, progress *float64) error {
	if progress == nil {
		return nil
	}
	grew := run.ProgressAt
	if run.Progress == nil || *progress > *run.Progress {
		grew = tx.now
	}
	run.Progress, run.ProgressAt = progress, grew
	return tx.exec(updateProgress, progress, grew, run.ID)
}

// EndRun ends a run for good (completed, failed), or the present segment of it.
func (s *Store) EndRun(ctx context.Context, sc ckpt.Scope, ref ckpt.RunRef, r ckpt.EndRequest) (*ckpt.Run, bool, error) {
	if err := ref.Check(); err != nil {
		return nil, false, err
	}
	if err := wellformed.RunEnd(&r); err != nil {
		return nil, false, err
	}
	c := s.screen(sc, ref.Agent, "run")
	c.ref("continuation_prompt", &r.ContinuationPrompt)
	c.ref("error", &r.Error)
	c.json("result", &r.Result)
	if c.err != nil {
		return nil, false, c.err
	}
	ref.Epoch = r.Epoch
	e := entry(sc, "end_run", ref.Agent)
	e.Run, e.Detail = runName(ref.Run), map[string]any{"status": r.Status}
	var final *save
	room := sqlite.Frees // retention has its say
	if len(r.State) > 0 {
		var err error
		if final, err = s.newSave(ctx, sc, &ckpt.SaveRequest{Agent: ref.Agent, Run: ref.Run, Kind: ckpt.KindRoutine, ContentType: ckpt.ContentTypeJSON, State: r.State}); err != nil {
			return nil, false, err
		}
		defer final.leave()
		room = sqlite.Adds
	}
	return keyed(s.drifts, sc, keyedRequest{agent: ref.Agent, key: r.IdempotencyKey, print: r, size: int64(len(r.State) + len(r.Result) + len(r.Error)), entry: e, claim: room, drift: true, secrets: c.found}, func(tx *tx, agent *agentRow) (*ckpt.Run, error) {
		run, err := s.needRun(tx, sc, ref)
		if err != nil {
			return nil, err
		}
		if final != nil {
			if err := s.admit(tx, final); err != nil {
				return nil, err
			}
			if _, err := s.insertCheckpoint(tx, final, agent, run); err != nil {
				return nil, err
			}
		}
		if err := endRun(tx, run, r); err != nil {
			return nil, err
		}
		if err := tx.audit(e); err != nil {
			return nil, err
		}
		return tx.shownRun(run.ID)
	})
}

func endRun(tx *tx, run *runRow, r ckpt.EndRequest) error {
	if err := leaveOpen(tx, run); err != nil {
		return err
	}
	var ended ckpt.Time
	if !r.Status.Resumable() {
		ended = tx.now
		if err := withdrawPrompts(tx, run); err != nil {
			return err
		}
	}
	return tx.exec(`UPDATE runs SET status = ?, ended_at = ?, accumulated_ms = ?, segment_at = NULL, interrupted_at = NULL, pid = NULL, continuation_prompt = ?, error = ?, result = ?, updated_at = ?
		WHERE id = ?`, string(r.Status), ended, run.accumulated(tx.now.Time), r.ContinuationPrompt, r.Error, r.Result, tx.now, run.ID)
}

// leaveOpen settles what the owner did not: nobody knows how its open steps and
// operations ended.
func leaveOpen(tx *tx, run *runRow) error {
	err := tx.exec(`UPDATE steps SET status = 'interrupted', ended_at = ? WHERE run_id = ? AND status = 'started'`, tx.now, run.ID)
	if err != nil {
		return err
	}
	return tx.exec(`UPDATE operations SET status = 'uncertain', ended_at = ? WHERE run_id = ? AND status = 'open'`, tx.now, run.ID)
}

// interrupt ends a segment without its owner's word, at the last sign of life.
func interruptRun(tx *tx, run *runRow, status ckpt.RunStatus) error {
	if err := leaveOpen(tx, run); err != nil {
		return err
	}
	run.AccumulatedMS = run.accumulated(run.lastSign())
	run.Status, run.SegmentAt, run.InterruptedAt = status, ckpt.Time{}, tx.now
	return tx.exec(`UPDATE runs SET status = ?, accumulated_ms = ?, segment_at = NULL, interrupted_at = ?, updated_at = ? WHERE id = ?`,
		string(status), run.AccumulatedMS, tx.now, tx.now, run.ID)
}
