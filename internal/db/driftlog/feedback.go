package driftlog

import (
	"context"
	"strconv"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db/ledger"
	"github.com/ckptsidecar/ckptsidecar/internal/db/sqlite"
	"github.com/ckptsidecar/ckptsidecar/internal/drift/observer"
)

// The bounds of a suggestion.
const (
	feedbackRuns   = 100 // the newest runs with findings of the rule that are judged again
	feedbackTries  = 12  // thresholds that are tried
	feedbackFactor = 3   // up to this many times the current one
)

// Feedback counts the findings of an agent and the dismissed ones, by rule, and looks for settings
// that would have avoided the latter.
func (s *Drifts) Feedback(ctx context.Context, sc ckpt.Scope, name string) (*ckpt.DriftFeedback, error) {
	agent, err := s.FindAgent(ctx, sc, name)
	if err != nil {
		return nil, err
	}
	s.AuditRead(sc, "read_drift", name, "")
	f := &ckpt.DriftFeedback{Agent: agent.Name, Owner: agent.Owner, Rules: []ckpt.RuleFeedback{}}
	var rows []struct {
		Rule      string `db:"rule"`
		Found     int64  `db:"found"`
		Dismissed int64  `db:"dismissed"`
	}
	err = s.RO.SelectContext(ctx, &rows, `SELECT f.rule, count(*) AS found, count(f.dismissed_at) AS dismissed FROM findings f
		JOIN runs r ON r.id = f.run_id
		WHERE r.agent_id = ? AND f.severity <> 'info' GROUP BY f.rule ORDER BY dismissed DESC, found DESC, f.rule`, agent.ID)
	if err != nil {
		return nil, sqlite.ReadError(err)
	}
	for _, row := range rows {
		rule := ckpt.RuleFeedback{Rule: row.Rule, Found: row.Found, Dismissed: row.Dismissed}
		if row.Dismissed > 0 && s.Opt.Drift != nil {
			if rule.Suggestion, err = s.suggest(ctx, agent, row.Rule); err != nil {
				return nil, err
			}
		}
		f.Rules = append(f.Rules, rule)
	}
	return f, nil
}

// judgedRun is a run in which a rule has warned.
type judgedRun struct {
	recordedRow
	Dismissed bool `db:"dismissed"` // all findings of the rule were dismissed
}

// suggest looks for the lowest threshold of a rule at which it would not have warned in the runs
// whose warnings were dismissed. It returns nil if there is no such threshold, or the rule has no
// threshold.
func (s *Drifts) suggest(ctx context.Context, agent *ledger.AgentRow, name string) (*ckpt.Suggestion, error) {
	rule := s.ruleOf(agent, name)
	if rule == nil || rule.Warn <= 0 && rule.Critical <= 0 {
		return nil, nil
	}
	var rows []judgedRun
	err := s.RO.SelectContext(ctx, &rows,
		`SELECT `+recordedColumns+`, min(f.dismissed_at IS NOT NULL) AS dismissed`+recordedTables+`JOIN findings f ON f.run_id = r.id
		WHERE r.agent_id = ? AND f.rule = ? AND f.severity <> 'info' GROUP BY r.id ORDER BY r.id DESC LIMIT 0 + ?`, agent.ID, name, feedbackRuns)
	if err != nil {
		return nil, sqlite.ReadError(err)
	}
	type judged struct {
		*observer.RecordedRun
		dismissed bool
	}
	var runs []judged
	for i := range rows {
		run, err := s.recorded(ctx, &rows[i].recordedRow, &agent.Settings)
		if err != nil {
			return nil, err
		}
		if len(run.Steps) > 0 && s.warns(agent, ckpt.Detector{}, name, run) { // else it shows nothing
			runs = append(runs, judged{run, rows[i].Dismissed})
		}
	}
	var best *ckpt.Suggestion
	for _, d := range laxer(rule) {
		if err := s.Opt.Drift.Check(withDetector(agent, name, d)); err != nil {
			break // more than the rule accepts
		}
		x := &ckpt.Suggestion{Set: setText(name, d), Detectors: map[string]ckpt.Detector{name: d}}
		for _, run := range runs {
			warns := s.warns(agent, d, name, run.RecordedRun)
			switch {
			case run.dismissed && !warns:
				x.Spared++
				x.Of++
			case run.dismissed:
				x.Of++
			case !warns:
				x.Lost++
			default:
				x.Kept++
			}
		}
		if x.Spared > 0 && (best == nil || x.Spared > best.Spared) {
			best = x
		}
		if x.Of == 0 || x.Spared == x.Of {
			break
		}
	}
	return best, nil
}

// ruleOf is a built-in rule with the settings of the agent's policy, nil for any other rule.
func (s *Drifts) ruleOf(agent *ledger.AgentRow, name string) *observer.Rule {
	for _, rule := range s.Opt.Drift.Rules(&agent.Settings) {
		if rule.Rule == name {
			return &rule
		}
	}
	return nil
}

// laxer returns settings of a rule with higher and higher thresholds.
func laxer(rule *observer.Rule) (list []ckpt.Detector) {
	value, step := rule.Warn, 1.0
	if value == 0 {
		value = rule.Critical
	}
	if value < 2 {
		step = value / 4
	}
	for x := value + step; x <= feedbackFactor*value && len(list) < feedbackTries; x += step {
		d := ckpt.Detector{Warn: x, WarnWindow: rule.WarnWindow, Critical: max(rule.Critical, x+step), CriticalWindow: rule.CriticalWindow}
		switch {
		case rule.Warn == 0:
			d.Warn, d.Critical = 0, x
		case rule.Critical == 0:
			d.Critical = 0
		}
		list = append(list, d)
	}
	return list
}

func withDetector(agent *ledger.AgentRow, name string, d ckpt.Detector) *ckpt.Policy {
	p := agent.Settings
	if d != (ckpt.Detector{}) {
		d.Tier, d.Cooldown = p.Detectors[name].Tier, p.Detectors[name].Cooldown
		(&ckpt.EvaluateRequest{Detectors: map[string]ckpt.Detector{name: d}}).Change(&p)
	}
	p.FalseAlarms = 0 // use the thresholds themselves
	return &p
}

// warns says whether a rule with another setting warns in a run.
func (s *Drifts) warns(agent *ledger.AgentRow, d ckpt.Detector, name string, run *observer.RecordedRun) bool {
	e := s.Opt.Drift.Evaluator()
	e.Judge(withDetector(agent, name, d), run, false)
	for _, row := range e.Result().Rows {
		if row.Rule == name && row.Tier == ckpt.SeverityWarn {
			return row.Fired > 0
		}
	}
	return false
}

// setText is a setting in the syntax of policy set.
func setText(name string, d ckpt.Detector) string {
	number := func(x float64) string { return strconv.FormatFloat(x, 'g', 4, 64) }
	switch {
	case d.Warn == 0:
		return "detectors." + name + ".critical=" + number(d.Critical)
	case d.Critical == 0:
		return "detectors." + name + ".warn=" + number(d.Warn)
	}
	return "detectors." + name + ".warn=" + number(d.Warn) + " detectors." + name + ".critical=" + number(d.Critical)
}
