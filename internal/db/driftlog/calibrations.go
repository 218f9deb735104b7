package driftlog

import (
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

// calibrations are the thresholds that follow from the good runs of agents whose policy asks for
// calibration. All of them are derived from the recorded runs: they are computed again after a
// start, a part in each tick. Changes are written to the audit log.
type calibrations struct {
	mu     sync.Mutex
	groups map[calibratedGroup]*calibrated
	looked map[int64]time.Time // by agent: when its runs were last looked at, by the monotonic clock
}

// calibratedGroup names the runs that share a calibration.
type calibratedGroup struct {
	agentID  int64
	workflow string
}

type calibrated struct {
	owner, agent string
	policy       string // the policy whose thresholds the scores are for
	scores       map[scoredRun]float64
	result       ckpt.Calibration
	whole        bool             // all good runs were scored at some time since the start
	recorded     ckpt.Calibration // what the audit log was told last
}

// scoredRun is a run as it ended: if it begins again, it counts as another run.
type scoredRun struct {
	id    int64
	ended string
}

// of is the calibration for a run that begins to be watched now.
func (c *calibrations) of(agentID int64, workflow, policy string) (ckpt.Calibration, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	g := c.groups[calibratedGroup{agentID, workflow}]
	if g == nil || g.policy != policy {
		return ckpt.Calibration{}, false
	}
	return g.result, true
}

// list returns the calibrations of an owner's agents, or of all.
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

// due says whether it is time to look at an agent's runs again.
func (c *calibrations) due(agentID int64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	at, known := c.looked[agentID]
	return !known || time.Since(at) >= calibrateAgain
}

// keep drops agents whose policy no longer asks for calibration.
func (c *calibrations) keep(asking map[int64]bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	maps.DeleteFunc(c.groups, func(of calibratedGroup, _ *calibrated) bool { return !asking[of.agentID] })
	maps.DeleteFunc(c.looked, func(id int64, _ time.Time) bool { return !asking[id] })
}

// ForgetCalibrations forgets what is known of an agent's runs. They are scored again.
func (s *Drifts) ForgetCalibrations(agentID int64) {
	c := &s.calibrations
	c.mu.Lock()
	defer c.mu.Unlock()
	maps.DeleteFunc(c.groups, func(of calibratedGroup, _ *calibrated) bool { return of.agentID == agentID })
	delete(c.looked, agentID)
}

// score is the known score of a run.
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

// put replaces what is known of a group. record says that the audit log does not have the thresholds
// yet. rewatch says that runs may be watched that had to begin without them.
func (c *calibrations) put(of calibratedGroup, g *calibrated) (record, rewatch bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var had ckpt.Calibration
	known := false
	if before := c.groups[of]; before != nil {
		g.recorded = before.recorded
		if before.policy == g.policy {
			had, known = before.result, before.whole
		}
	}
	rewatch = !known && otherThresholds(had, g.result)
	if record = g.whole && otherThresholds(g.recorded, g.result); record {
		g.recorded = g.result
	}
	g.whole = g.whole || known
	c.groups[of] = g
	return record, rewatch
}

func otherThresholds(a, b ckpt.Calibration) bool { return a.Factor != b.Factor || a.Capped != b.Capped }
