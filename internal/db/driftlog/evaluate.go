package driftlog

import (
	"context"
	"slices"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db/ledger"
	"github.com/ckptsidecar/ckptsidecar/internal/db/sqlite"
)

// Evaluate judges the recorded runs again: it reports which of them would have been warned, with
// the policies of their agents or with the settings in the request. It reads one run at a time, and
// never blocks the writer.
func (s *Drifts) Evaluate(ctx context.Context, sc ckpt.Scope, r ckpt.EvaluateRequest) (*ckpt.Evaluation, error) {
	if err := r.Check(); err != nil {
		return nil, err
	}
	rows, more, err := s.recordedRuns(ctx, &sc, r)
	if err != nil {
		return nil, err
	}
	if s.Opt.Drift == nil {
		return nil, ckpt.Errorf(ckpt.CodeConflict, "this daemon does not watch for drift")
	}
	s.AuditRead(sc, "evaluate_drift", r.Agent, r.Run)
	evaluator := s.Opt.Drift.Evaluator()
	agents := map[int64]*judgedAgent{}
	for i := range rows {
		row := &rows[i]
		agent := agents[row.AgentID]
		if agent == nil {
			if agent, err = s.readJudged(ctx, row, &r); err != nil {
				return nil, err
			}
			agents[row.AgentID] = agent
		}
		run, err := s.recorded(ctx, row, &agent.own)
		if err != nil {
			return nil, err
		}
		if len(run.Steps) > 0 {
			evaluator.Judge(&agent.asked, run, r.Run != "")
		}
	}
	result := evaluator.Result()
	result.More = more
	return result, nil
}

// judgedAgent is an agent whose runs are judged again.
type judgedAgent struct {
	own   ckpt.Policy
	asked ckpt.Policy // with the settings in the request
}

func (s *Drifts) readJudged(ctx context.Context, row *recordedRow, r *ckpt.EvaluateRequest) (*judgedAgent, error) {
	agent := ledger.AgentRow{Name: row.Agent}
	err := s.RO.GetContext(ctx, &agent.Policy, `SELECT policy FROM agents WHERE id = ?`, row.AgentID)
	if ledger.IsNoRows(err) {
		err = ckpt.Errorf(ckpt.CodeConflict, "agent %s was just deleted: evaluate again", row.Agent)
	}
	if err != nil {
		return nil, sqlite.ReadError(err)
	}
	if _, err := agent.Parsed(); err != nil {
		return nil, err
	}
	judged := &judgedAgent{agent.Settings, agent.Settings}
	r.Change(&judged.asked)
	return judged, s.Opt.Drift.Check(&judged.asked)
}

// recordedRuns returns the newest runs that match, oldest first, as many as can be judged at once.
func (s *Drifts) recordedRuns(ctx context.Context, sc *ckpt.Scope, r ckpt.EvaluateRequest) (list []recordedRow, more bool, err error) {
	agentID := int64(0)
	if r.Agent != "" {
		agent, err := s.FindAgent(ctx, *sc, r.Agent)
		if err != nil {
			return nil, false, err
		}
		agentID = agent.ID
	}
	if sc.Admin && sc.Target == "" && r.Agent == "" {
		sc.Target = ckpt.AllOwners
	}
	since := ckpt.Time{}
	if r.Since != nil {
		since = *r.Since
	}
	err = s.RO.SelectContext(ctx, &list, `SELECT `+recordedColumns+recordedTables+`WHERE (a.owner = ?1 OR ?1 = '*') AND (?2 = 0 OR a.id = ?2)
		AND (?3 = '' OR r.workflow = ?3) AND r.started_at >= ?4 AND (?5 = '' OR r.name = ?5) AND r.steps_ended > 0 ORDER BY r.id DESC LIMIT 0 + ?6`,
		sc.Whose(), agentID, r.Workflow, since.String(), r.Run, ckpt.MaxEvaluatedRuns+1)
	if err != nil {
		return nil, false, sqlite.ReadError(err)
	}
	if r.Run != "" && len(list) == 0 {
		return nil, false, ckpt.Errorf(ckpt.CodeNotFound, "run %s of %s has no steps here", r.Run, r.Agent)
	}
	if more = len(list) > ckpt.MaxEvaluatedRuns; more {
		list = list[:ckpt.MaxEvaluatedRuns]
	}
	most, steps := r.MaxSteps, int64(0)
	if most == 0 {
		most = ckpt.MaxEvaluated
	}
	for i := range list {
		if steps += list[i].Steps; steps > most && i > 0 {
			list, more = list[:i], true
			break
		}
	}
	slices.Reverse(list)
	return list, more, nil
}
