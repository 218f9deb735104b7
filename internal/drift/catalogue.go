package drift

import ckpt "github.com/ckptsidecar/ckptsidecar"

// The names of the rules in this package. Rules of the user have their own names.
const (
	RuleRepeat           = "repeat"
	RuleCycle            = "cycle"
	RuleStale            = "stale"
	RuleErrorStreak      = "error_streak"
	RuleErrorRate        = "error_rate"
	RuleSameError        = "same_error"
	RuleRepeatedError    = "repeated_error"
	RuleRepeatedResult   = "repeated_result"
	RuleChurn            = "churn"
	RuleNoProgress       = "no_progress"
	RuleProgressReversed = "progress_reversed"
	RuleLatencyDrift     = "latency_drift"
	RuleTokenDrift       = "token_drift"
	RuleCheckpointSize   = "checkpoint_size"
	RuleBudget           = "budget"
	RuleUnparsable       = "unparsable_result"
	RuleSchema           = ckpt.RuleSchema
	RuleSchemaStopped    = "schema_stopped"
	RuleLostKeys         = "lost_keys"
	RuleTypeChanged      = "type_changed"
	RuleCounterReversed  = "counter_reversed"
	RuleGoalChanged      = "goal_changed"
	RuleStaleCheckpoint  = "stale_checkpoint"
	RuleContextAge       = "context_age"
	RuleBlindSteps       = ckpt.RuleBlindSteps
	RuleEdgeRevisits     = "edge_revisits"
)

// The families of rules.
const (
	familyLoops      = "loops"
	familyOperation  = "operation"
	familyState      = "state"
	familyStaleness  = "staleness"
	familyAgreement  = "agreement"
	familyCorruption = "corruption"
)

// ruleInfo describes a rule and its defaults.
type ruleInfo struct {
	name, family, about string
	unit                string        // what the thresholds count; "" if there are none
	one                 ckpt.Severity // the severity of a rule with one tier; "" means two tiers
	most                ckpt.Severity // the highest severity unless the policy says otherwise; "" means critical
	warn, critical      threshold
	of                  ckpt.About // what its findings are about
	far                 float64    // of a gauge: how many times the baseline is a warning
	over                int        // after how many steps without a sign of it a finding is over; 0 means the longest window
	overWhen            string
	counts              bool // the thresholds are whole numbers, and sensitivity scales them together with their windows
	elsewhere           bool // the store finds it, not this package
}

// When the findings of rules that are alike are over.
const (
	overErrors  = "Five steps in a row succeeded, and the newest steps have less than half the errors that error_rate warns about."
	overRepeats = "No pair came twice in a window of the critical length, or the declared progress grew."
	overGauge   = "The sum for each kind of the tool's calls has fallen to half the threshold."
)

// leastGood is the number of good steps in a row that end findings of errors.
const leastGood = 5

// threshold is what a tier needs: a value within a window of steps or checkpoints. The
// zero value means that the rule does not have the tier.
type threshold struct {
	value  float64
	window int
}

// maxCooldown is the longest that a rule is silent, in steps. The cooldown doubles with
// every finding of a spell.
const maxCooldown = 100_000

// catalogue lists all rules, in the order that people expect.
var catalogue = []ruleInfo{
	{name: RuleRepeat, family: familyLoops,
		of: ckpt.AboutWork, overWhen: overRepeats, about: "One call gave the same result this many times among the newest steps, with nothing new in between. One more call " +
			"is needed for warn if something new came in between.",
		unit: "times", warn: threshold{4, 12}, critical: threshold{5, 20}, counts: true},
	{name: RuleCycle, family: familyLoops,
		of: ckpt.AboutWork, overWhen: overRepeats, about: "The newest steps are this many copies of one block of 2 to 5 steps, with the same results. At least 3 of them are repetitions.",
		unit: "copies", warn: threshold{2, 0}, critical: threshold{3, 0}, counts: true},
	{name: RuleStale, family: familyLoops,
		of: ckpt.AboutWork, overWhen: "None of the steps in a window was made before in this run, or the declared progress grew.", about: "This many of the newest steps, at least 4 of them different, were made before in this run with the same results.",
		unit: "old steps", critical: threshold{6, 8}, counts: true},
	{name: RuleErrorStreak, family: familyLoops, of: ckpt.AboutWork, overWhen: overErrors, over: leastGood, about: "This many steps in a row failed. Each further kind of error subtracts half an error. " +
		"For warn, a call that reported a problem and was made again at once counts one more.",
		unit: "errors in a row", warn: threshold{3, 0}, critical: threshold{5, 0}, counts: true},
	{name: RuleErrorRate, family: familyLoops, of: ckpt.AboutWork, overWhen: overErrors, over: leastGood, about: "This many of the newest steps failed. Each further kind of error subtracts half an error.",
		unit: "errors", warn: threshold{5, 10}, critical: threshold{8, 10}, counts: true},
	{name: RuleSameError, family: familyLoops, of: ckpt.AboutWork, overWhen: overErrors, over: leastGood, about: "At least 2 tools failed with the same error, this many times among the newest steps.",
		unit: "times the same error", warn: threshold{2, 6}, critical: threshold{5, 10}, counts: true},
	{name: RuleRepeatedError, family: familyLoops,
		of: ckpt.AboutWork, overWhen: overErrors, over: leastGood, about: "One tool failed with the same error this many times among the newest steps, whatever its arguments. " +
			"One more failure is needed if something new succeeded in between.",
		unit: "times the same error", warn: threshold{4, 10}, critical: threshold{8, 12}, counts: true},
	{name: RuleRepeatedResult, family: familyLoops,
		of: ckpt.AboutWork, overWhen: "No tool gave the same result twice in a window without recorded arguments, or the declared progress grew.",
		about: "One tool gave the same result this many times among the newest steps. The arguments of these steps were not recorded.",
		unit:  "times", most: ckpt.SeverityWarn, warn: threshold{8, 12}, counts: true},
	{name: RuleChurn, family: familyLoops,
		of: ckpt.AboutWork, overWhen: "No file was set to the same content twice in a window, or the declared progress grew.", about: "One file was set to the same content, or put back to its committed version, this many times among the newest steps.",
		unit: "times", most: ckpt.SeverityInfo, warn: threshold{3, 50}, counts: true},
	{name: RuleEdgeRevisits, family: familyLoops, of: ckpt.AboutWork, over: edgeRecent,
		overWhen: "None of the newest 20 edges was taken so often, or the counts that the loop tells are lower.",
		about:    "A loop that is a state machine took one edge this many times, by its events state_enter or by edge_revisit_counts.",
		unit:     "times", one: ckpt.SeverityWarn, warn: threshold{20, 0}},
	{name: RuleBlindSteps, family: familyLoops, of: ckpt.AboutRun, overWhen: "A step had arguments and a name that came before.",
		about: "This many steps in a row had no arguments, or each had another name: loops cannot be seen in them.",
		unit:  "steps", one: ckpt.SeverityInfo, warn: threshold{20, 0}},
	{name: RuleNoProgress, family: familyLoops,
		of: ckpt.AboutRun, overWhen: "The declared progress grew.", about: "The declared progress has not grown for this many times the steps or the time " +
			"that the policy allows (no_progress_steps, no_progress_time).",
		unit: "times what the policy allows", warn: threshold{1, 0}, critical: threshold{2, 0}},
	{name: RuleProgressReversed, family: familyLoops, of: ckpt.AboutWork, overWhen: "The declared progress is back at the value that it fell from.", about: "The declared progress fell.", one: ckpt.SeverityWarn},
	{name: RuleLatencyDrift, family: familyOperation,
		of: ckpt.AboutRun, overWhen: overGauge, about: "Calls of one kind take longer than the first ones did, by this many standard deviations added up over time; " +
			"the window is the number of steps in the baseline. Five calls in a row that take ten times as long (far) are a warning.",
		unit: "standard deviations", one: ckpt.SeverityInfo, warn: threshold{5, 20}, far: gaugeFar},
	{name: RuleTokenDrift, family: familyOperation,
		of: ckpt.AboutRun, overWhen: overGauge, about: "Calls of one kind use more tokens than the first ones did, by this many standard deviations added up over " +
			"time; the window is the number of steps in the baseline. Five calls in a row that use ten times as many (far) are a warning.",
		unit: "standard deviations", one: ckpt.SeverityInfo, warn: threshold{5, 20}, far: gaugeFar},
	{name: RuleCheckpointSize, family: familyOperation,
		of: ckpt.AboutState, overWhen: "The next state has neither shrunk nor grown so much.", about: "The state shrank by more than half without a compaction, or is larger than this many times the median of the newest checkpoints.",
		unit: "times the median", one: ckpt.SeverityInfo, warn: threshold{10, 20}},
	{name: RuleBudget, family: familyOperation,
		of: ckpt.AboutRun, overWhen: "The policy allows more.", about: "The run has used this share of the policy's budget. Two thirds of the threshold for warn give a finding of severity info.",
		unit: "of the budget", warn: threshold{0.9, 0}, critical: threshold{1, 0}},
	{name: RuleUnparsable, family: familyState, of: ckpt.AboutWork, overWhen: "Five results in a row are not broken.", over: leastGood, about: "A result begins like JSON and does not parse.", one: ckpt.SeverityWarn},
	{name: RuleSchema, family: familyState, of: ckpt.AboutState, overWhen: "The next state fits the schema.", about: "The state breaks the JSON Schema in the policy.", one: ckpt.SeverityCritical},
	{name: RuleSchemaStopped, family: familyState,
		of: ckpt.AboutRun, overWhen: "The schema was checked on the next state.", about: "The JSON Schema in the policy costs too much to check on the state.", one: ckpt.SeverityWarn},
	{name: RuleLostKeys, family: familyState, of: ckpt.AboutState, overWhen: "A later state has all the keys again.", about: "A top-level key that this many checkpoints in a row had is gone.",
		unit: "checkpoints", one: ckpt.SeverityWarn, warn: threshold{3, 0}},
	{name: RuleTypeChanged, family: familyState,
		of: ckpt.AboutState, overWhen: "The value in a later state has its old type again.", about: "A top-level value has another JSON type than before. Null does not count as a type.", one: ckpt.SeverityWarn},
	{name: RuleCounterReversed, family: familyState, of: ckpt.AboutState, overWhen: "The number in a later state is back at the value that it fell from.", about: "A whole number that only grew over this many checkpoints fell.",
		unit: "checkpoints", one: ckpt.SeverityWarn, warn: threshold{5, 0}},
	{name: RuleGoalChanged, family: familyState,
		of: ckpt.AboutWork, overWhen: "The first goal was declared again, or there was a goal_update event.", about: "The declared goal is not the run's first one, and there was no goal_update event.", one: ckpt.SeverityWarn},
	{name: RuleStaleCheckpoint, family: familyStaleness,
		of: ckpt.AboutRun, overWhen: "A routine checkpoint was saved.", about: "No routine checkpoint was saved for this many times the policy's checkpoint_interval.",
		unit: "intervals", one: ckpt.SeverityWarn, warn: threshold{1, 0}},
	{name: RuleContextAge, family: familyStaleness,
		of: ckpt.AboutRun, overWhen: "A recovery checkpoint was saved, or the run was resumed.", about: "There was no recovery checkpoint and no resume for this many times the policy's refresh_after.",
		unit: "times refresh_after", one: ckpt.SeverityInfo, warn: threshold{1, 0}},
	{name: ckpt.RuleSharedKeys, family: familyAgreement,
		of: ckpt.AboutWork, overWhen: "The agents agree again, or the others have ended.", about: "Agents have disagreed on a value that the policy's shared_keys name for longer than settle.",
		one: ckpt.SeverityWarn, elsewhere: true},
	{name: ckpt.RuleCorruption, family: familyCorruption, of: ckpt.AboutState, overWhen: "The next state was saved; it is stored whole.", about: "A stored state does not read back intact.",
		one: ckpt.SeverityCritical, elsewhere: true},
}
