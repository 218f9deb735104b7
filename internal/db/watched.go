package db

import (
	"context"
	"encoding/json"
	"os"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db/ledger"
	"github.com/ckptsidecar/ckptsidecar/internal/db/sqlite"
	"github.com/ckptsidecar/ckptsidecar/internal/liveness"
)

// The methods that the monitor of internal/monitor needs.

// selectWatched repeats the condition of the index runs_watched word for word. Otherwise SQLite
// would not use the index, and would read all runs each second.
const selectWatched = `SELECT r.id, r.name, r.epoch, r.pid, r.process_start, r.boot_id, r.started_at, r.heartbeat_at,
	r.progress_at, r.heartbeat_timeout_ms, r.progress_timeout_ms, a.owner, a.name AS agent,
	r.progress_timeout_ms > 0 AND EXISTS (SELECT 1 FROM prompts p WHERE p.run_id = r.id AND p.kind = 'question' AND p.answered_at IS NULL
		AND (p.expires_at IS NULL OR p.expires_at > ?3)) AS asks FROM runs r INDEXED BY runs_watched
	JOIN agents a ON a.id = r.agent_id
	WHERE r.id > ?1 AND r.status = 'running'
	AND (r.pid IS NOT NULL OR r.heartbeat_timeout_ms > 0 OR r.progress_timeout_ms > 0) ORDER BY r.id LIMIT 0 + ?2`

// watchedRow is a run as the monitor sees it. A damaged time counts as none, so that the run does not
// hide the others.
type watchedRow struct {
	ledger.RunRow
	Owner       string                    `db:"owner"`
	Agent       string                    `db:"agent"`
	StartedAt   ledger.Lenient[ckpt.Time] `db:"started_at"`
	HeartbeatAt ledger.Lenient[ckpt.Time] `db:"heartbeat_at"`
	ProgressAt  ledger.Lenient[ckpt.Time] `db:"progress_at"`
	Asks        bool                      `db:"asks"`
}

// Watched returns running runs that have a known owner process or a timeout, by ascending id.
func (s *Store) Watched(ctx context.Context, after int64, limit int) ([]liveness.Run, error) {
	if err := s.Ready(ctx); err != nil {
		return nil, err // no heartbeat can arrive either
	}
	var rows []watchedRow
	err := s.RO.SelectContext(ctx, &rows, selectWatched, after, limit, ckpt.At(s.Opt.Now()))
	if err != nil {
		return nil, sqlite.ReadError(err)
	}
	runs := make([]liveness.Run, len(rows))
	for i := range rows {
		r := &rows[i]
		r.RunRow.StartedAt, r.RunRow.HeartbeatAt, r.RunRow.ProgressAt = r.StartedAt.Value, r.HeartbeatAt.Value, r.ProgressAt.Value
		s.WithBeat(&r.RunRow)
		runs[i] = liveness.Run{ID: r.ID, Owner: r.Owner, Agent: r.Agent, Run: r.Name, Epoch: r.Epoch, Process: r.Process(), LastBeat: r.LastSign(),
			LastProgress: r.LastProgress(), HeartbeatTimeout: time.Duration(r.HeartbeatMS) * time.Millisecond,
			ProgressTimeout: time.Duration(r.ProgressMS) * time.Millisecond, Asks: r.Asks}
	}
	return runs, nil
}

// Interrupt ends the segment of a run that was found dead. It returns false if the run has changed
// owners or sent a heartbeat since.
func (s *Store) Interrupt(_ context.Context, w liveness.Run, status ckpt.RunStatus, reason string) (did bool, err error) {
	err = s.Submit(&ledger.Op{Owner: ledger.Daemon, Claim: sqlite.GoesOn, Do: func(tx *ledger.Tx) error {
		did = false
		run, agent, err := s.RunWithAgent(tx, w.ID)
		if err != nil || run == nil || run.Epoch != w.Epoch || run.Status != ckpt.RunRunning {
			return err
		}
		if status == ckpt.RunTimedOut && !stillLate(run, w) {
			return nil
		}
		did = true
		return s.foundDead(tx, agent, run, status, reason)
	}})
	return did, err
}

// InterruptMoved ends the segments of runs that came from another host while they were running.
// Their owners stayed there, so nobody can send heartbeats for them here.
func (s *Store) InterruptMoved(ctx context.Context, uids []string, reason string) error {
	list, err := json.Marshal(uids)
	if err != nil {
		return err
	}
	var running []liveness.Run
	err = s.RO.SelectContext(ctx, &running, `SELECT id, epoch FROM runs WHERE status = 'running' AND source IS NULL
		AND uid IN (SELECT value FROM json_each(?))`, string(list))
	if err != nil {
		return sqlite.ReadError(err)
	}
	for _, run := range running {
		if _, err := s.Interrupt(ctx, run, ckpt.RunInterrupted, reason); err != nil {
			return err
		}
	}
	return nil
}

// stillLate says whether no sign of life has come since the monitor looked. It compares the times
// for equality, because the wall clock may have been set back.
func stillLate(run *ledger.RunRow, w liveness.Run) bool {
	return run.LastSign().Equal(w.LastBeat) && run.LastProgress().Equal(w.LastProgress)
}

func (s *Store) foundDead(tx *ledger.Tx, agent *ledger.AgentRow, run *ledger.RunRow, status ckpt.RunStatus, reason string) error {
	if err := s.interruptRun(tx, agent, run, status, reason); err != nil {
		return err
	}
	e := ledger.AuditEntry{Who: ledger.Daemon, PID: os.Getpid(), Action: "interrupt_run", Owner: agent.Owner,
		Agent: agent.Name, Run: run.Name, Outcome: ledger.OutcomeDone,
		Reason: reason, Detail: map[string]any{}}
	e.States(status, run.Epoch)
	if err := tx.Audit(e); err != nil {
		return err
	}
	kind := ckpt.NoticeDead
	if status == ckpt.RunTimedOut {
		kind = ckpt.NoticeTimedOut
	}
	_, _, err := s.Notify(tx, kind, ckpt.NoticeData{Owner: agent.Owner, Agent: agent.Name, Run: run.Name, Message: reason})
	if err != nil {
		return err
	}
	if agent.Settings.Autoresume || s.Opt.Resume == nil {
		return nil
	}
	sc := ckpt.Scope{Caller: ckpt.Caller{Owner: agent.Owner}}
	plan, err := s.plan(tx, sc, agent, run, ckpt.ResumeRequest{Agent: agent.Name, Run: run.Name, DryRun: true})
	if err != nil {
		return err
	}
	_, err = s.openPrompt(tx, agent, run, plan)
	return err
}
