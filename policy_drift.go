package ckptsidecar

import (
	"bytes"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// The limits of a policy's settings for drift.
const (
	maxIgnoreTools = 256
	MaxSchema      = 256 << 10 // bytes of JSON
	MaxSharedKeys  = 32
	MaxRules       = 64
	maxRuleName    = 64
	maxWhen        = 4 << 10 // bytes of an expression
	maxMessage     = 1 << 10 // bytes of a finding's message and advice
	maxPointer     = 512     // bytes of a JSON pointer
	maxWindow      = 1000    // the most steps or checkpoints that a detector looks back
)

// The tiers of a detector.
const (
	TierOff      = "off"
	TierInfo     = "info"     // a finding is only for reading later
	TierWarn     = "warn"     // a finding never becomes critical
	TierCritical = "critical" // both tiers
)

// DefaultCooldown is the number of steps for which a rule is silent after a finding.
const DefaultCooldown = 20

// Cooldown returns the cooldown of a rule, in steps.
func (p *Policy) Cooldown(rule string) int {
	if n := p.Detectors[rule].Cooldown; n > 0 {
		return n
	}
	return DefaultCooldown
}

// Fill replaces nil lists with empty ones, so that JSON has them as lists. It also sets
// the members that follow from others.
func (p *Policy) Fill() {
	if p.Detectors == nil {
		p.Detectors = map[string]Detector{}
	}
	if p.IgnoreTools == nil {
		p.IgnoreTools = []string{}
	}
	if p.SharedKeys == nil {
		p.SharedKeys = []string{}
	}
	if p.Rules == nil {
		p.Rules = []Rule{}
	}
	if bytes.Equal(bytes.TrimSpace(p.Schema), []byte("null")) {
		p.Schema = nil
	}
	p.fillFleet()
}

// checkDrift checks the drift settings of a policy as far as that is possible without the
// detectors. DriftWatch.Check does the rest.
func (p *Policy) checkDrift() error {
	for _, check := range []func() error{
		p.checkDriftWords, p.checkFalseAlarms, p.checkDetectors, p.checkIgnoreTools,
		p.checkDriftTimes, p.Budget.check, p.checkSharedKeys, p.checkRules,
	} {
		if err := check(); err != nil {
			return err
		}
	}
	return nil
}

func (p *Policy) checkDriftWords() error {
	switch p.Sensitivity {
	case SensitivityOff, SensitivityLow, SensitivityNormal, SensitivityHigh:
	default:
		return Errorf(CodeInvalid, "sensitivity is %q: it must be off, low, normal or high", cut(string(p.Sensitivity)))
	}
	switch p.SchemaMode {
	case SchemaRefuse, SchemaReport:
		return nil
	}
	return Errorf(CodeInvalid, "schema_mode is %q: it must be refuse or report", cut(string(p.SchemaMode)))
}

func (p *Policy) checkFalseAlarms() error {
	switch {
	case p.FalseAlarms != 0 && !(p.FalseAlarms >= 0.002 && p.FalseAlarms <= 0.5):
		return Errorf(CodeInvalid, "false_alarms is %s: it must be 0.2%% to 50%%, or off", p.FalseAlarms)
	case !(p.FalseAlarmsLaxest >= 1 && p.FalseAlarmsLaxest <= 100):
		return Errorf(CodeInvalid, "false_alarms_laxest is %v: it must be between 1 (never laxer than the thresholds) and 100", p.FalseAlarmsLaxest)
	}
	return nil
}

func (p *Policy) checkDetectors() error {
	for name, d := range p.Detectors {
		if err := checkRuleName(name); err != nil {
			return Errorf(CodeInvalid, "detectors: %s", AsError(err).Message)
		}
		if err := d.check("detectors." + name); err != nil {
			return err
		}
	}
	return nil
}

func (d *Detector) check(place string) error {
	switch d.Tier {
	case "", TierOff, TierInfo, TierWarn, TierCritical:
	default:
		return Errorf(CodeInvalid, "%s.tier is %q: it must be off, info, warn or critical", place, cut(d.Tier))
	}
	for name, threshold := range map[string]float64{"warn": d.Warn, "critical": d.Critical, "far": d.Far} {
		if !(threshold >= 0 && threshold <= 1e9) { // this also refuses NaN
			return Errorf(CodeInvalid, "%s.%s is %v: it must be between 0 (the default) and 1000000000", place, name, threshold)
		}
	}
	for name, window := range map[string]int{"warn_window": d.WarnWindow, "critical_window": d.CriticalWindow, "cooldown": d.Cooldown, "over": d.Over} {
		if window < 0 || window > maxWindow {
			return Errorf(CodeInvalid, "%s.%s is %d: it must be between 0 (the default) and %d", place, name, window, maxWindow)
		}
	}
	return nil
}

func (p *Policy) checkIgnoreTools() error {
	if len(p.IgnoreTools) > maxIgnoreTools {
		return Errorf(CodeInvalid, "ignore_tools has %d names: at most %d are allowed", len(p.IgnoreTools), maxIgnoreTools)
	}
	for i, tool := range p.IgnoreTools {
		if err := CheckKey("name", tool); err != nil {
			return Errorf(CodeInvalid, "ignore_tools[%d]: %s", i, AsError(err).Message)
		}
	}
	return nil
}

func (p *Policy) checkDriftTimes() error {
	for name, d := range map[string]Duration{
		"no_progress_time": p.NoProgressTime, "checkpoint_interval": p.CheckpointInterval, "refresh_after": p.RefreshAfter,
	} {
		if d < 0 || time.Duration(d) > maxTimeout || d > 0 && time.Duration(d) < time.Second {
			return Errorf(CodeInvalid, "%s is %s: it must be 0s for never, or 1s to %s", name, d, Duration(maxTimeout))
		}
	}
	if time.Duration(p.Settle) < time.Second || time.Duration(p.Settle) > maxTimeout {
		return Errorf(CodeInvalid, "settle is %s: it must be 1s to %s", p.Settle, Duration(maxTimeout))
	}
	if p.NoProgressSteps < 0 {
		return Errorf(CodeInvalid, "no_progress_steps is %d: give a number of steps, or 0 to turn the rule off", p.NoProgressSteps)
	}
	return nil
}

func (b *Budget) check() error {
	switch {
	case b.Steps < 0:
		return Errorf(CodeInvalid, "budget.steps is %d: give a number of steps, or 0 for no limit", b.Steps)
	case b.Tokens < 0:
		return Errorf(CodeInvalid, "budget.tokens is %d: give a number of tokens, or 0 for no limit", b.Tokens)
	case !(b.CostUSD >= 0) || math.IsInf(b.CostUSD, 0):
		return Errorf(CodeInvalid, "budget.cost_usd is %v: give a number of dollars, or 0 for no limit", b.CostUSD)
	case b.WallTime < 0:
		return Errorf(CodeInvalid, "budget.wall_time is %s: give a duration, or 0s for no limit", b.WallTime)
	}
	return nil
}

func (p *Policy) checkSharedKeys() error {
	if len(p.SharedKeys) > MaxSharedKeys {
		return Errorf(CodeInvalid, "shared_keys has %d pointers: at most %d are allowed", len(p.SharedKeys), MaxSharedKeys)
	}
	for i, pointer := range p.SharedKeys {
		if err := checkPointer(pointer); err != nil {
			return Errorf(CodeInvalid, "shared_keys[%d]: %s", i, AsError(err).Message)
		}
		if slices.Contains(p.SharedKeys[:i], pointer) {
			return Errorf(CodeInvalid, "shared_keys[%d]: %q is listed twice", i, pointer)
		}
	}
	return nil
}

func (p *Policy) checkRules() error {
	if len(p.Rules) > MaxRules {
		return Errorf(CodeInvalid, "there are %d rules: at most %d are allowed", len(p.Rules), MaxRules)
	}
	for i := range p.Rules {
		if err := p.Rules[i].check(); err != nil {
			return Errorf(CodeInvalid, "rules[%d]: %s", i, AsError(err).Message)
		}
		if slices.ContainsFunc(p.Rules[:i], func(r Rule) bool { return r.Name == p.Rules[i].Name }) {
			return Errorf(CodeInvalid, "rules[%d]: another rule has the name %s", i, p.Rules[i].Name)
		}
	}
	return nil
}

func (r *Rule) check() error {
	if err := checkRuleName(r.Name); err != nil {
		return err
	}
	if err := checkSeverity(r.Severity); err != nil {
		return err
	}
	switch {
	case strings.TrimSpace(r.When) == "":
		return Errorf(CodeInvalid, "when is missing: give an expression that is true when something is wrong")
	case len(r.When) > maxWhen:
		return Errorf(CodeInvalid, "when is %d bytes long: at most %d are allowed", len(r.When), maxWhen)
	case !utf8.ValidString(r.When):
		return Errorf(CodeInvalid, "when is not valid UTF-8")
	}
	return checkMessage("message", r.Message)
}

// checkMessage accepts an empty or printable text of at most maxMessage bytes.
func checkMessage(what, s string) error {
	if len(s) > maxMessage {
		return Errorf(CodeInvalid, "the %s is %d bytes long: at most %d are allowed", what, len(s), maxMessage)
	}
	return checkText(what, s)
}

// checkRuleName accepts ^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$.
func checkRuleName(name string) error { return checkName("rule", name, maxRuleName, "._-") }

// checkSeverity accepts the severities that a finding can have.
func checkSeverity(s Severity) error {
	switch s {
	case SeverityInfo, SeverityWarn, SeverityCritical:
		return nil
	case "":
		return Errorf(CodeInvalid, "severity is missing: give info, warn or critical")
	}
	return Errorf(CodeInvalid, "severity %q is unknown: it must be info, warn or critical", cut(string(s)))
}

// checkPointer accepts a JSON pointer (RFC 6901) to something inside a value.
func checkPointer(pointer string) error {
	switch {
	case pointer == "" || pointer[0] != '/':
		return Errorf(CodeInvalid, "%q is not a JSON pointer to a part of a state: it must begin with /", cut(pointer))
	case len(pointer) > maxPointer:
		return Errorf(CodeInvalid, "the JSON pointer is %d bytes long: at most %d are allowed", len(pointer), maxPointer)
	}
	for i := range len(pointer) {
		if pointer[i] == '~' && (i+1 == len(pointer) || pointer[i+1] != '0' && pointer[i+1] != '1') {
			return Errorf(CodeInvalid, "%s is not a JSON pointer: write ~ as ~0, and / inside a name as ~1", strconv.Quote(cut(pointer)))
		}
	}
	return checkText("JSON pointer", pointer)
}
