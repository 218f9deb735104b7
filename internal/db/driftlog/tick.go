package driftlog

import (
	"context"
	"errors"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db/ledger"
	"github.com/ckptsidecar/ckptsidecar/internal/db/sqlite"
)

// The bounds of a tick.
const (
	tickRuns    = 100         // runs that are asked
	tickSlice   = 20          // of them in one transaction
	tickAgain   = time.Minute // the same run is not asked more often
	tickLooked  = 5000        // running runs that are looked at
	tickForgets = 10 * time.Minute
)

// TickDrift tells the watches of live runs that time has passed, if something may be due. It also
// compares the values on which agents must agree, and calibrates thresholds. One goroutine must
// call it again and again. If one of these fails, the others go on.
func (s *Drifts) TickDrift(ctx context.Context) error {
	if s.Opt.Drift == nil || s.Ready(ctx) != nil {
		return nil
	}
	return errors.Join(s.calibrate(ctx), s.tickDue(ctx), s.compareShared(ctx))
}

// tickDue asks the watches of runs for which something may be due. It leaves out runs whose rows are
// damaged, and reports them.
func (s *Drifts) tickDue(ctx context.Context) error {
	due, failed := s.dueRuns(ctx)
	for len(due) > 0 && ctx.Err() == nil {
		some := due[:min(tickSlice, len(due))]
		due = due[len(some):]
		err := s.tickSome(some)
		switch {
		case err == nil:
		case !ledger.IsDamage(err):
			return errors.Join(failed, err)
		case len(some) == 1:
			failed = errors.Join(failed, err)
		default: // the damage is in one of them
			for i := range some {
				failed = errors.Join(failed, s.tickSome(some[i:i+1]))
			}
		}
	}
	return failed
}

// runningRow is a run that is known to be alive, with the times of its last events.
type runningRow struct {
	ID         int64                     `db:"id"`
	Owner      string                    `db:"owner"`
	Agent      string                    `db:"agent"`
	Name       string                    `db:"name"`
	Policy     string                    `db:"policy"`
	StartedAt  ledger.Lenient[ckpt.Time] `db:"started_at"`
	SegmentAt  ledger.Lenient[ckpt.Time] `db:"segment_at"`
	ProgressAt ledger.Lenient[ckpt.Time] `db:"progress_at"`
	Routine    ledger.Lenient[ckpt.Time] `db:"routine"`
	Recovery   ledger.Lenient[ckpt.Time] `db:"recovery"`
}

// dueRuns returns the runs for which half of any of their policy's times has passed; the detectors
// know the exact times. A run without a process and without heartbeats is not among them, because
// it is not known to be alive. If there are too many, the next tick continues after these.
func (s *Drifts) dueRuns(ctx context.Context) ([]runningRow, error) {
	now, mono := s.Opt.Now(), time.Now()
	if s.Ticked == nil {
		s.Ticked = map[int64]time.Time{}
	}
	for id, at := range s.Ticked {
		if mono.Sub(at) > tickForgets {
			delete(s.Ticked, id)
		}
	}
	var rows []runningRow
	err := s.RO.SelectContext(ctx, &rows, `SELECT r.id, a.owner, a.name AS agent, r.name, a.policy, r.started_at, r.segment_at, r.progress_at,
			coalesce((SELECT created_at FROM checkpoints c WHERE c.run_id = r.id AND c.kind = 'routine' ORDER BY c.seq DESC LIMIT 1), '') AS routine,
			coalesce((SELECT created_at FROM checkpoints c WHERE c.run_id = r.id AND c.kind = 'recovery' ORDER BY c.seq DESC LIMIT 1), '') AS recovery
		FROM runs r JOIN agents a ON a.id = r.agent_id
		WHERE r.status = 'running' AND (r.pid IS NOT NULL OR r.heartbeat_timeout_ms > 0 OR r.progress_timeout_ms > 0)
		AND (r.pid IS NOT NULL OR r.heartbeat_timeout_ms > 0) AND r.id > ? ORDER BY r.id LIMIT 0 + ?`, s.tickedTo, tickLooked)
	if err != nil {
		return nil, sqlite.ReadError(err)
	}
	if s.tickedTo = 0; len(rows) == tickLooked {
		s.tickedTo = rows[len(rows)-1].ID
	}
	var due []runningRow
	for i := range rows {
		if mono.Sub(s.Ticked[rows[i].ID]) < tickAgain || !rows[i].due(now) {
			continue
		}
		s.Ticked[rows[i].ID] = mono
		if due = append(due, rows[i]); len(due) == tickRuns {
			s.tickedTo = rows[i].ID
			break
		}
	}
	return due, nil
}

func (r *runningRow) due(now time.Time) bool {
	agent := ledger.AgentRow{Name: r.Agent, Policy: r.Policy}
	if _, err := agent.Parsed(); err != nil || agent.Settings.Sensitivity == ckpt.SensitivityOff {
		return false
	}
	p := &agent.Settings
	for _, d := range []struct {
		length ckpt.Duration
		since  []ckpt.Time
	}{
		{p.CheckpointInterval, []ckpt.Time{r.StartedAt.Value, r.SegmentAt.Value, r.Routine.Value}},
		{p.RefreshAfter, []ckpt.Time{r.StartedAt.Value, r.SegmentAt.Value, r.Recovery.Value}},
		{p.NoProgressTime, []ckpt.Time{r.StartedAt.Value, r.ProgressAt.Value}},
		{p.Budget.WallTime, []ckpt.Time{r.StartedAt.Value}},
	} {
		last := time.Time{}
		for _, at := range d.since {
			if at.After(last) {
				last = at.Time
			}
		}
		if d.length > 0 && now.Sub(last) >= time.Duration(d.length)/2 {
			return true
		}
	}
	return false
}

// tickSome asks the watches of some runs in one transaction.
func (s *Drifts) tickSome(rows []runningRow) error {
	pasts := make([]*past, len(rows))
	for i := range rows {
		pasts[i] = s.ReadAheadFor(ckpt.Scope{Caller: ckpt.Caller{Owner: rows[i].Owner}}, ckpt.RunRef{Agent: rows[i].Agent, Run: rows[i].Name})
	}
	return s.Submit(&ledger.Op{Owner: ledger.Daemon, Do: func(tx *ledger.Tx) error {
		for i := range rows {
			run, agent, err := s.RunWithAgent(tx, rows[i].ID)
			if err != nil {
				return err
			}
			if run == nil || run.Status != ckpt.RunRunning {
				continue
			}
			w, err := s.WatchRun(tx, agent, run, pasts[i])
			if err != nil {
				return err
			}
			if err := s.WatchBeat(tx, agent, run, w, nil); err != nil {
				return err
			}
		}
		return nil
	}})
}
