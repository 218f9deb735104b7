package drift

import (
	"math"
	"slices"
	"strings"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/drift/phrase"
)

// settings are a policy in the form for the detectors: every number is set, and the
// sensitivity is applied.
type settings struct {
	policy *ckpt.Policy
	off    bool // turns the whole watch off
	rules  map[string]setting
	ignore map[string]bool
	good   ckpt.Calibration // the calibration of the thresholds; its Factor is 0 if they were not calibrated
}

// setting is the setting of one rule.
type setting struct {
	off            bool
	warn, critical threshold
	one            ckpt.Severity // the severity of a rule with one tier
	most           ckpt.Severity // the highest severity of a finding
	cooldown       int64
	of             ckpt.About
	far            float64 // of a gauge: how many times the baseline, five times in a row, has the severity farOne
	farOne         ckpt.Severity
	over           int // after how many steps without a sign a finding is over
}

// The factors of the thresholds for each sensitivity.
var sensitivities = map[ckpt.Sensitivity]float64{
	ckpt.SensitivityLow: 1.5, ckpt.SensitivityNormal: 1, ckpt.SensitivityHigh: 0.7,
}

func settingsOf(p *ckpt.Policy) settings {
	policy := *p
	s := settings{
		policy: &policy, off: p.Sensitivity == ckpt.SensitivityOff,
		rules: make(map[string]setting, len(catalogue)), ignore: make(map[string]bool, len(p.IgnoreTools)),
	}
	scale := sensitivities[p.Sensitivity]
	if scale == 0 {
		scale = 1
	}
	for _, tool := range p.IgnoreTools {
		s.ignore[tool] = true
	}
	for i := range catalogue {
		s.rules[catalogue[i].name] = settingOf(&catalogue[i], p.Detectors[catalogue[i].name], scale)
	}
	return s
}

// own returns the setting of a rule of the user.
func (s *settings) own(name string) setting {
	return settingOf(&ruleInfo{name: name}, s.policy.Detectors[name], 1)
}

func settingOf(rule *ruleInfo, d ckpt.Detector, scale float64) setting {
	set := setting{
		off:      d.Tier == ckpt.TierOff,
		warn:     rule.warn.scaled(rule, scale).with(d.Warn, d.WarnWindow),
		critical: rule.critical.scaled(rule, scale).with(d.Critical, d.CriticalWindow),
		far:      rule.far * scale, one: rule.one, most: ckpt.SeverityCritical, cooldown: ckpt.DefaultCooldown, of: rule.of, over: rule.over,
	}
	if rule.most != "" {
		set.most = rule.most
	}
	if rule.counts && d.Critical == 0 && rule.warn.value > 0 {
		set.critical.value = max(set.critical.value, set.warn.value+1) // rounding must not make the tiers equal
	}
	switch d.Tier {
	case ckpt.TierInfo:
		set.most = ckpt.SeverityInfo
	case ckpt.TierWarn:
		set.most = ckpt.SeverityWarn
	case ckpt.TierCritical:
		set.most = ckpt.SeverityCritical
	default: // the rule's own default
		d.Tier = ""
	}
	if d.Far > 0 {
		set.far = d.Far
	}
	if set.farOne = ckpt.SeverityWarn; d.Tier != "" {
		set.farOne = set.most
	}
	if set.one != "" && d.Tier != "" {
		set.one = set.most
	}
	if d.Cooldown > 0 {
		set.cooldown = int64(d.Cooldown)
	}
	if rule.counts && set.over == 0 {
		if set.over = max(set.warn.window, set.critical.window); rule.name == RuleCycle {
			set.over = maxBlock * int(max(set.warn.value, set.critical.value))
		}
	}
	if d.Over > 0 {
		set.over = d.Over
	}
	return set
}

// scaled returns the threshold at a sensitivity. Counts stay whole and at least 2, and a
// window grows with its count, so that the count can be reached.
func (t threshold) scaled(rule *ruleInfo, scale float64) threshold {
	if t.value == 0 || scale == 1 || rule.name == RuleBudget {
		return t
	}
	if !rule.counts {
		if rule.unit != "checkpoints" {
			t.value *= scale
		}
		return t
	}
	t.value = max(2, math.Round(t.value*scale))
	if scale > 1 {
		t.window = int(math.Round(float64(t.window) * scale))
	}
	return t
}

// with returns the threshold with the values that the policy sets.
func (t threshold) with(value float64, window int) threshold {
	if value > 0 {
		t.value = value
	}
	if window > 0 {
		t.window = window
	}
	return t
}

// capped returns a severity that is not higher than the policy allows for the rule.
func (s setting) capped(severity ckpt.Severity) ckpt.Severity {
	if severity.Rank() > s.most.Rank() {
		return s.most
	}
	return severity
}

// detector returns the setting in the form of a policy.
func (s setting) detector() ckpt.Detector {
	d := ckpt.Detector{
		Tier: ckpt.TierCritical, Warn: s.warn.value, WarnWindow: s.warn.window,
		Critical: s.critical.value, CriticalWindow: s.critical.window, Cooldown: int(s.cooldown), Over: s.over, Far: s.far,
	}
	switch {
	case s.off:
		d.Tier = ckpt.TierOff
	case s.one != "":
		d.Tier = string(s.one)
	case s.most != ckpt.SeverityCritical:
		d.Tier = string(s.most)
	case s.critical.value == 0:
		d.Tier = ckpt.TierWarn
	}
	return d
}

// reach returns how many steps the loop detectors look back.
func (s *settings) reach() int {
	reach := 64
	for _, rule := range s.rules {
		reach = max(reach, rule.warn.window, rule.critical.window, rule.over)
	}
	cycle, streak := s.rules[RuleCycle], s.rules[RuleErrorStreak]
	for _, t := range []threshold{cycle.warn, cycle.critical} {
		reach = max(reach, maxBlock*int(t.value))
	}
	return max(reach, 2*int(streak.warn.value), 2*int(streak.critical.value))
}

// checkDetectors refuses settings of unknown rules, and thresholds that no run could
// reach.
func checkDetectors(p *ckpt.Policy) error {
	for _, name := range sortedKeys(p.Detectors, len(p.Detectors)) {
		d := p.Detectors[name]
		i := slices.IndexFunc(catalogue, func(r ruleInfo) bool { return r.name == name })
		own := slices.ContainsFunc(p.Rules, func(r ckpt.Rule) bool { return r.Name == name })
		switch {
		case i < 0 && !own && name != ckpt.RuleSecret:
			return ckpt.Errorf(ckpt.CodeInvalid, "detectors.%s: there is no such rule: there are %s, and the rules of the policy",
				phrase.Cut(name), strings.Join(ruleNames(), ", "))
		case d.Far > 0 && (i < 0 || catalogue[i].far == 0):
			return ckpt.Errorf(ckpt.CodeInvalid, "detectors.%s.far: only %s and %s have far", phrase.Cut(name), RuleLatencyDrift, RuleTokenDrift)
		case i >= 0 && catalogue[i].counts:
			if err := checkCounts(&catalogue[i], d, p); err != nil {
				return err
			}
		}
	}
	return checkRuleNames(p)
}

// maxCount is the largest count that a threshold can have.
const maxCount = 200

func checkCounts(rule *ruleInfo, d ckpt.Detector, p *ckpt.Policy) error {
	set := settingsOf(p).rules[rule.name]
	for _, tier := range []struct {
		name string
		threshold
	}{{"warn", set.warn}, {"critical", set.critical}} {
		switch {
		case tier.value != math.Trunc(tier.value) || tier.value > maxCount:
			return ckpt.Errorf(ckpt.CodeInvalid, "detectors.%s.%s is %s: it counts %s, and is a whole number up to %d", rule.name,
				tier.name, phrase.Figure(tier.value), rule.unit, maxCount)
		case tier.window > 0 && tier.value > float64(tier.window):
			return ckpt.Errorf(ckpt.CodeInvalid, "detectors.%s.%s is %s in a window of %d: it can never be reached", rule.name,
				tier.name, phrase.Figure(tier.value), tier.window)
		}
	}
	return nil
}

// checkRuleNames refuses a rule of the user with the name of a rule that comes with the
// program.
func checkRuleNames(p *ckpt.Policy) error {
	for i := range p.Rules {
		name := p.Rules[i].Name
		if slices.Contains(ruleNames(), name) || name == ckpt.RuleSecret {
			return ckpt.Errorf(ckpt.CodeInvalid, "rules[%d]: %s comes with the program: call the rule something else", i, name)
		}
	}
	return nil
}

func ruleNames() []string {
	names := make([]string, 0, len(catalogue))
	for i := range catalogue {
		names = append(names, catalogue[i].name)
	}
	return names
}
