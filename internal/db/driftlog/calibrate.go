package driftlog

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db/blob"
	"github.com/ckptsidecar/ckptsidecar/internal/db/ledger"
	"github.com/ckptsidecar/ckptsidecar/internal/db/sqlite"
	"github.com/ckptsidecar/ckptsidecar/internal/drift/observer"
)

// The bounds of calibration.
const (
	calibrateAgain = time.Minute // the same agent's runs are not looked at more often
	calibrateRuns  = 50          // the most runs that one tick scores
	calibrateMost  = 10_000      // the newest runs of an agent, of all its workflows together, that count
)

// calibrate scores good runs that have no score yet, and computes thresholds from the scores.
func (s *Drifts) calibrate(ctx context.Context) error {
	var agents []ledger.AgentRow
	if err := s.RO.SelectContext(ctx, &agents,
		`SELECT id, owner, name, policy FROM agents WHERE policy LIKE '%"false_alarms"%' AND policy NOT LIKE '%"false_alarms":"off"%'`); err != nil {
		return sqlite.ReadError(err)
	}
	asking := map[int64]bool{}
	left := calibrateRuns
	var failed error
	for i := range agents {
		agent := &agents[i]
		if _, err := agent.Parsed(); err != nil || agent.Settings.FalseAlarms <= 0 || agent.Settings.Sensitivity == ckpt.SensitivityOff {
			continue
		}
		asking[agent.ID] = true
		if left <= 0 || !s.calibrations.due(agent.ID) {
			continue
		}
		if err := s.calibrateAgent(ctx, agent, &left); err != nil {
			if failed = errors.Join(failed, err); ctx.Err() != nil {
				return failed
			}
		}
	}
	s.calibrations.keep(asking)
	return failed
}

// calibrateAgent brings the groups of an agent up to date. left is how many runs may still be
// scored. If that is not enough, the next tick continues. Runs that are damaged do not count.
func (s *Drifts) calibrateAgent(ctx context.Context, agent *ledger.AgentRow, left *int) error {
	var rows []recordedRow
	err := s.RO.SelectContext(ctx, &rows, `SELECT `+recordedColumns+recordedTables+`WHERE r.id IN (
		SELECT id FROM (SELECT id, row_number() OVER (PARTITION BY workflow ORDER BY ended_at DESC, id DESC) AS place
			FROM runs WHERE agent_id = ? AND status = 'completed' AND steps_ended > 0) WHERE place <= ?)
		ORDER BY r.ended_at DESC, r.id DESC LIMIT 0 + ?`, agent.ID, observer.MaxCalibrated, calibrateMost)
	if err != nil {
		return sqlite.ReadError(err)
	}
	groups := map[string]*calibrated{}
	whole := true
	var failed error
	for i := range rows {
		row := &rows[i]
		g := groups[string(row.Workflow)]
		if g == nil {
			g = &calibrated{owner: agent.Owner, agent: agent.Name, policy: agent.Policy, scores: map[scoredRun]float64{}}
			groups[string(row.Workflow)] = g
		}
		as := scoredRun{row.ID, row.EndedAt.String()}
		score, known := s.calibrations.score(calibratedGroup{agent.ID, string(row.Workflow)}, agent.Policy, as)
		if !known {
			if *left <= 0 {
				whole = false
				continue
			}
			*left--
			run, err := s.recorded(ctx, row, nil)
			if ledger.IsDamage(err) {
				failed = errors.Join(failed, err)
				continue
			}
			if err != nil {
				return errors.Join(err, failed)
			}
			made, _ := makePrint(s, blob.RunKey{Owner: agent.Owner, Agent: agent.Name, Run: row.Name}, func() (*float64, error) {
				score := s.Opt.Drift.Score(&agent.Settings, run)
				return &score, nil
			})
			if made == nil {
				continue
			}
			score = *made
		}
		g.scores[as] = score
	}
	again := false
	for workflow, g := range groups {
		g.result, g.whole = s.Opt.Drift.Calibrate(&agent.Settings, slices.Collect(maps.Values(g.scores))), whole
		record, rewatch := s.calibrations.put(calibratedGroup{agent.ID, workflow}, g)
		again = again || rewatch
		if record {
			e := ledger.DaemonEntry(agent, "calibrate")
			e.Detail = map[string]any{"workflow": workflow, "false_alarms": g.result.Asked, "runs": g.result.Runs,
				"needs": g.result.Needs, "factor": g.result.Factor, "capped": g.result.Capped}
			s.Record(e)
		}
	}
	if whole {
		s.calibrations.mu.Lock()
		s.calibrations.looked[agent.ID] = time.Now()
		s.calibrations.mu.Unlock()
	}
	if !again {
		return failed
	}
	err = s.Submit(&ledger.Op{Owner: ledger.Daemon, Do: func(*ledger.Tx) error {
		s.Watches.DropAgent(agent.Owner, agent.Name)
		return nil
	}})
	return errors.Join(err, failed)
}

// calibrationOf is the calibration for a run of an agent, nil if the policy does not ask for one.
func (s *Drifts) calibrationOf(agent *ledger.AgentRow, workflow string) *ckpt.Calibration {
	if s.Opt.Drift == nil || agent.Settings.FalseAlarms <= 0 {
		return nil
	}
	c, known := s.calibrations.of(agent.ID, workflow, agent.Policy)
	if !known {
		c = s.Opt.Drift.Calibrate(&agent.Settings, nil)
	}
	c.Source, c.Workflow = agent.Name, ckpt.Ref(workflow)
	return &c
}
