package drift

import (
	"math"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

// settings are a policy as the detectors read it: every number is there, and
// the sensitivity is worked in.
type settings struct {
	policy *ckpt.Policy
	off    bool // the whole watch
	rules  map[string]setting
	ignore map[string]bool
}

// setting is what holds for one rule.
type setting struct {
	off            bool
	warn, critical Threshold
	severity       ckpt.Severity // of a rule with one tier
	most           ckpt.Severity // a finding is never more severe
	cooldown       int64
}

// The thresholds are multiplied by the sensitivity.
var sensitivities = map[ckpt.Sensitivity]float64{
	"": 1, ckpt.SensitivityLow: 1.5, ckpt.SensitivityNormal: 1, ckpt.SensitivityHigh: 0.7,
}

func settingsOf(p *ckpt.Policy) settings {
	s := settings{
		policy: p, off: p.Sensitivity == ckpt.SensitivityOff,
		rules: make(map[string]setting, 24), ignore: make(map[string]bool, len(p.IgnoreTools)),
	}
	scale := sensitivities[p.Sensitivity]
	if scale == 0 {
		scale = 1
	}
	for _, tool := range p.IgnoreTools {
		s.ignore[tool] = true
	}
	for _, rule := range Rules() {
		s.rules[rule.Name] = settingOf(rule, p.Detectors[rule.Name], scale)
	}
	return s
}

// own is the setting of a rule of the user's own.
func (s *settings) own(name string) setting {
	return settingOf(Rule{Name: name}, s.policy.Detectors[name], 1)
}

func settingOf(rule Rule, d ckpt.Detector, scale float64) setting {
	set := setting{
		off:      d.Tier == "off",
		warn:     rule.Warn.scaled(rule, scale).with(d.Warn, d.WarnWindow),
		critical: rule.Critical.scaled(rule, scale).with(d.Critical, d.CriticalWindow),
		severity: rule.Severity, most: ckpt.SeverityCritical, cooldown: DefaultCooldown,
	}
	switch d.Tier {
	case "warn":
		set.most = ckpt.SeverityWarn
	case "critical":
		if rule.Severity != "" {
			set.severity = ckpt.SeverityCritical
		}
	}
	if d.Cooldown > 0 {
		set.cooldown = int64(d.Cooldown)
	}
	return set
}

// scaled is the threshold at a sensitivity. Counts stay whole and at least 2,
// and a window grows with its count, so that it can be reached.
func (t Threshold) scaled(rule Rule, scale float64) Threshold {
	if t.Value == 0 || scale == 1 || rule.Name == RuleBudget {
		return t
	}
	if !rule.Count {
		t.Value *= scale
		return t
	}
	t.Value = max(2, math.Round(t.Value*scale))
	if scale > 1 {
		t.Window = int(math.Round(float64(t.Window) * scale))
	}
	return t
}

// with is the threshold with what the policy says instead.
func (t Threshold) with(value float64, window int) Threshold {
	if value > 0 {
		t.Value = value
	}
	if window > 0 {
		t.Window = window
	}
	return t
}

// capped is a severity no higher than the policy allows for the rule.
func (s setting) capped(severity ckpt.Severity) ckpt.Severity {
	if severity == ckpt.SeverityCritical {
		return s.most
	}
	return severity
}

// reach is how many steps the loop detectors look back.
func (s *settings) reach() int {
	reach := 64
	for _, rule := range s.rules {
		reach = max(reach, rule.warn.Window, rule.critical.Window)
	}
	cycle := s.rules[RuleCycle]
	return max(reach, maxBlock*int(cycle.warn.Value), maxBlock*int(cycle.critical.Value))
}
