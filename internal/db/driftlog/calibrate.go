package driftlog

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db/ledger"
	"github.com/ckptsidecar/ckptsidecar/internal/db/sqlite"
)

// The bounds of calibrating.
const (
	calibrateAgain = time.Minute // the same agent is not looked at more often
	calibrateRuns  = 50          // that are scored in one tick
)

// calibrations are what the good runs of agents make of the thresholds, where a
// policy asks for it. All of it follows from the recorded runs: it is made anew
// after a start, a part in each tick, and what changes is written to the audit
// log.
type calibrations struct {
	mu     sync.Mutex
	groups map[calibratedGroup]*calibrated
	looked map[int64]time.Time // by agent: when its runs were last looked at, by the monotonic clock
}

// calibratedGroup are the runs that are calibrated on together.
type calibratedGroup struct {
	agentID  int64
	workflow string
}

type calibrated struct {
	owner, agent string
	policy       string // the scores are of its thresholds
	scores       map[scoredRun]float64
	result       ckpt.Calibration
}

// scoredRun is a run as it ended: begun anew it is another one.
type scoredRun struct {
	id    int64
	ended string
}

// of is what holds for a run that begins to be watched now.
func (c *calibrations) of(agentID int64, workflow, policy string) (ckpt.Calibration, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	g := c.groups[calibratedGroup{agentID, workflow}]
	if g == nil || g.policy != policy {
		return ckpt.Calibration{}, false
	}
	return g.result, true
}

// list are those of an owner's agents, or of all.
func (c *calibrations) list(owner string) []ckpt.Calibration {
	c.mu.Lock()
	defer c.mu.Unlock()
	list := []ckpt.Calibration{}
	for of, g := range c.groups {
		if owner == ckpt.AllOwners || owner == g.owner {
			result := g.result
			result.Source, result.Workflow = g.agent, ckpt.Ref(of.workflow)
			list = append(list, result)
		}
	}
	slices.SortFunc(list, func(a, b ckpt.Calibration) int {
		return strings.Compare(a.Source+"\x00"+string(a.Workflow), b.Source+"\x00"+string(b.Workflow))
	})
	return list
}

// calibrate scores good runs that were not scored yet, and makes thresholds of
// them.
func (s *Drifts) calibrate(ctx context.Context) error {
	var agents []ledger.AgentRow
	if err := s.RO.SelectContext(ctx, &agents, `SELECT id, owner, name, policy FROM agents WHERE policy LIKE '%"false_alarms"%' AND policy NOT LIKE '%"false_alarms":"off"%'`); err != nil {
		return sqlite.ReadError(err)
	}
	asking := map[int64]bool{}
	left := calibrateRuns
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
			return err
		}
	}
	s.calibrations.keep(asking)
	return nil
}

// due says whether an agent's runs are to be looked at again.
func (c *calibrations) due(agentID int64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	at, known := c.looked[agentID]
	return !known || time.Since(at) >= calibrateAgain
}

// keep lets go of agents that do not ask any more.
func (c *calibrations) keep(asking map[int64]bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	maps.DeleteFunc(c.groups, func(of calibratedGroup, _ *calibrated) bool { return !asking[of.agentID] })
	maps.DeleteFunc(c.looked, func(id int64, _ time.Time) bool { return !asking[id] })
}

// calibrateAgent brings the groups of an agent up to date. left is how many runs
// may still be scored; where that is not enough the next tick goes on.
func (s *Drifts) calibrateAgent(ctx context.Context, agent *ledger.AgentRow, left *int) error {
	var rows []recordedRow
	err := s.RO.SelectContext(ctx, &rows, `SELECT `+recordedColumns+recordedTables+`WHERE r.id IN (
		SELECT id FROM (SELECT id, row_number() OVER (PARTITION BY workflow ORDER BY ended_at DESC, id DESC) AS place
			FROM runs WHERE agent_id = ? AND status = 'completed' AND steps_ended > 0) WHERE place <= ?)`, agent.ID, ckpt.MaxCalibrated)
	if err != nil {
		return sqlite.ReadError(err)
	}
	groups := map[string]*calibrated{}
	whole := true
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
			run, err := s.recorded(ctx, row, false)
			if err != nil {
				return err
			}
			score = s.Opt.Drift.Score(&agent.Settings, run)
		}
		g.scores[as] = score
	}
	for workflow, g := range groups {
		g.result = s.Opt.Drift.Calibrate(&agent.Settings, slices.Collect(maps.Values(g.scores)))
		if changed := s.calibrations.put(calibratedGroup{agent.ID, workflow}, g); changed && whole {
			e := ledger.DaemonEntry(agent, "calibrate")
			e.Detail = map[string]any{"workflow": workflow, "false_alarms": g.result.Asked, "runs": g.result.Runs, "needs": g.result.Needs, "factor": g.result.Factor, "capped": g.result.Capped}
			s.Record(e)
		}
	}
	if whole {
		s.calibrations.mu.Lock()
		s.calibrations.looked[agent.ID] = time.Now()
		s.calibrations.mu.Unlock()
	}
	return nil
}

// score is what is known of a run.
func (c *calibrations) score(of calibratedGroup, policy string, as scoredRun) (float64, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	g := c.groups[of]
	if g == nil || g.policy != policy {
		return 0, false
	}
	score, known := g.scores[as]
	return score, known
}

// put replaces what is known of a group, and says whether other thresholds hold
// now.
func (c *calibrations) put(of calibratedGroup, g *calibrated) (changed bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.groups == nil {
		c.groups, c.looked = map[calibratedGroup]*calibrated{}, map[int64]time.Time{}
	}
	before := c.groups[of]
	c.groups[of] = g
	return before == nil && g.result.Factor > 0 || before != nil && (before.result.Factor != g.result.Factor || before.result.Capped != g.result.Capped)
}

// calibrationOf is what holds for a run of an agent, nil where the policy does
// not ask for it.
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
