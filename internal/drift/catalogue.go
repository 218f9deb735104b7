package drift

import ckpt "github.com/ckptsidecar/ckptsidecar"

// The names of the rules that are found here. An agent's own rules have names
// of their own; "corrupt", "shared_keys" and "secret" are found elsewhere.
const (
	RuleRepeat           = "repeat"
	RuleCycle            = "cycle"
	RuleStale            = "stale"
	RuleErrorStreak      = "error_streak"
	RuleErrorRate        = "error_rate"
	RuleSameError        = "same_error"
	RuleNoProgress       = "no_progress"
	RuleProgressReversed = "progress_reversed"
	RuleLatencyDrift     = "latency_drift"
	RuleTokenDrift       = "token_drift"
	RuleCheckpointSize   = "checkpoint_size"
	RuleBudget           = "budget"
	RuleSchema           = ckpt.RuleSchema
	RuleLostKeys         = "lost_keys"
	RuleTypeChanged      = "type_changed"
	RuleCounterReversed  = "counter_reversed"
	RuleGoalChanged      = "goal_changed"
	RuleUnparsable       = "unparsable_result"
	RuleStaleCheckpoint  = "stale_checkpoint"
	RuleContextAge       = "context_age"
)

// Rule is what a rule does where the policy says nothing.
type Rule struct {
	Name     string
	Unit     string        // of the thresholds
	Severity ckpt.Severity // of a rule with one tier; "" has two
	Warn     Threshold
	Critical Threshold
	Count    bool // the thresholds are whole numbers, and sensitivity scales them with their windows
}

// Threshold is what a tier needs: so much, in so many steps or checkpoints.
// Zero is a tier that the rule does not have.
type Threshold struct {
	Value  float64
	Window int
}

// DefaultCooldown is for how many steps a rule is silent after a finding. It
// doubles with every finding of one unbroken spell, up to MaxCooldown.
const (
	DefaultCooldown = 20
	MaxCooldown     = 100_000
)

// MaxWindow is the largest window that a policy may ask for.
const MaxWindow = 1000

// Rules are all rules with their defaults, in the order in which a step tries them.
func Rules() []Rule {
	return []Rule{
		{Name: RuleRepeat, Unit: "times the same", Warn: Threshold{3, 12}, Critical: Threshold{5, 20}, Count: true},
		{Name: RuleCycle, Unit: "copies", Warn: Threshold{2, 0}, Critical: Threshold{3, 0}, Count: true},
		{Name: RuleStale, Unit: "old steps", Critical: Threshold{6, 8}, Count: true},
		{Name: RuleErrorStreak, Unit: "errors in a row", Warn: Threshold{3, 0}, Critical: Threshold{5, 0}, Count: true},
		{Name: RuleErrorRate, Unit: "errors", Warn: Threshold{5, 10}, Critical: Threshold{7, 10}, Count: true},
		{Name: RuleSameError, Unit: "times the same error, from different tools", Warn: Threshold{2, 6}, Critical: Threshold{5, 10}, Count: true},
		{Name: RuleNoProgress, Unit: "times what the policy allows", Warn: Threshold{1, 0}, Critical: Threshold{2, 0}},
		{Name: RuleProgressReversed, Severity: ckpt.SeverityWarn},
		{Name: RuleLatencyDrift, Unit: "standard deviations", Severity: ckpt.SeverityWarn, Warn: Threshold{5, 20}},
		{Name: RuleTokenDrift, Unit: "standard deviations", Severity: ckpt.SeverityWarn, Warn: Threshold{5, 20}},
		{Name: RuleCheckpointSize, Unit: "times the median", Severity: ckpt.SeverityWarn, Warn: Threshold{10, 20}},
		{Name: RuleBudget, Unit: "of the budget", Warn: Threshold{0.9, 0}, Critical: Threshold{1, 0}},
		{Name: RuleSchema, Severity: ckpt.SeverityCritical},
		{Name: RuleLostKeys, Unit: "checkpoints that had the key", Severity: ckpt.SeverityWarn, Warn: Threshold{3, 0}},
		{Name: RuleTypeChanged, Severity: ckpt.SeverityWarn},
		{Name: RuleCounterReversed, Unit: "checkpoints in which it only grew", Severity: ckpt.SeverityWarn, Warn: Threshold{5, 0}},
		{Name: RuleGoalChanged, Severity: ckpt.SeverityWarn},
		{Name: RuleUnparsable, Severity: ckpt.SeverityWarn},
		{Name: RuleStaleCheckpoint, Unit: "times the interval", Severity: ckpt.SeverityWarn, Warn: Threshold{1, 0}},
		{Name: RuleContextAge, Unit: "times the age", Severity: ckpt.SeverityInfo, Warn: Threshold{1, 0}},
	}
}
