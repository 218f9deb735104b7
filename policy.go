package ckptsidecar

import (
	"time"
)

// Policy is an agent's settings. If a stored or sent policy leaves out a member, the member has its default.
type Policy struct {
	RoutineKeep  int      `json:"routine_keep"`  // how many routine checkpoints of a run stay; 0 keeps all
	RecoveryKeep Duration `json:"recovery_keep"` // how long a recovery checkpoint stays
	// PreOperationKeep is how long a pre_operation checkpoint stays if it was saved without an operation, such as that of a prompt; 0
	// keeps it. If it belongs to an operation, it stays until the operation has succeeded.
	PreOperationKeep Duration    `json:"pre_operation_keep"`
	EndedKeep        Duration    `json:"ended_keep"` // how long an ended run and its checkpoints stay
	LivesKeep        int         `json:"lives_keep"` // how many earlier lives of a run stay; 0 keeps all until ended_keep is over
	MaxBytes         int64       `json:"max_bytes"`  // budget of stored bytes; 0 for none
	MaxEvents        int         `json:"max_events"` // of a run; the oldest are removed
	Secrets          SecretsMode `json:"secrets"`

	Autoresume       bool     `json:"autoresume"`        // an interrupted run waits to be resumed; if false, an operator is asked
	HeartbeatTimeout Duration `json:"heartbeat_timeout"` // for runs that set none themselves; 0 for none
	ProgressTimeout  Duration `json:"progress_timeout"`  // the same for progress

	Sensitivity        Sensitivity         `json:"sensitivity"`         // scales the thresholds of all detectors; off watches nothing
	Detectors          map[string]Detector `json:"detectors"`           // by rule; a rule not listed has its default
	FalseAlarms        Percent             `json:"false_alarms"`        // calibrate the loop rules on this agent's own good runs; 0 means off
	FalseAlarmsLaxest  float64             `json:"false_alarms_laxest"` // the largest factor of calibrated thresholds
	IgnoreTools        []string            `json:"ignore_tools"`        // tools whose steps no loop detector counts
	NoProgressSteps    int64               `json:"no_progress_steps"`   // declared progress must grow within this many steps; 0 for no such rule
	NoProgressTime     Duration            `json:"no_progress_time"`    // the same as a time
	Budget             Budget              `json:"budget"`              // what a run may use
	CheckpointInterval Duration            `json:"checkpoint_interval"` // a routine checkpoint is due after it; 0s for never
	RefreshAfter       Duration            `json:"refresh_after"`       // a refresh is advised after it; 0s for never
	Schema             JSON                `json:"schema"`              // a JSON Schema of the agent's states, the name of a shipped one, or null
	SchemaMode         SchemaMode          `json:"schema_mode"`
	SharedKeys         []string            `json:"shared_keys"` // JSON pointers on which this owner's agents must agree
	Settle             Duration            `json:"settle"`      // how long the agents may differ
	Rules              []Rule              `json:"rules"`       // rules that the user has written

	Durability Durability `json:"durability"` // where a write must be safe before it is acknowledged
	OnOutage   OnOutage   `json:"on_outage"`  // the answer if the engine of the fleet is unreachable; only with fleet durability

	Takeover    Takeover    `json:"takeover"`      // who may move the agent's runs to another host
	OnLeaseLost OnLeaseLost `json:"on_lease_lost"` // what exec does if this host may have lost the run
}

// Sensitivity scales the thresholds of the detectors.
type Sensitivity string

// The sensitivities.
const (
	SensitivityOff    Sensitivity = "off"
	SensitivityLow    Sensitivity = "low"
	SensitivityNormal Sensitivity = "normal"
	SensitivityHigh   Sensitivity = "high"
)

// Detector is a policy's settings for one rule. Zero means the default.
type Detector struct {
	Tier           string  `json:"tier,omitempty"`            // off, or the highest severity of a finding: info, warn or critical
	Warn           float64 `json:"warn,omitempty"`            // the threshold of the tier, in the rule's own unit
	WarnWindow     int     `json:"warn_window,omitempty"`     // the number of steps or checkpoints that the tier looks at
	Critical       float64 `json:"critical,omitempty"`        // the same for the critical tier
	CriticalWindow int     `json:"critical_window,omitempty"` // the same for the critical tier
	Cooldown       int     `json:"cooldown,omitempty"`        // after a finding, the rule is silent at this tier for this many steps
	Over           int     `json:"over,omitempty"`            // a finding is over after this many steps without a sign of it
	Far            float64 `json:"far,omitempty"`             // latency_drift and token_drift: so many times the baseline, five times in a row, is a warning
}

// Budget is the maximum that a run may use. 0 means no limit.
type Budget struct {
	Steps    int64    `json:"steps,omitempty"`
	Tokens   int64    `json:"tokens,omitempty"` // input and output together
	CostUSD  float64  `json:"cost_usd,omitempty"`
	WallTime Duration `json:"wall_time,omitempty"`
}

// SchemaMode is what happens to a state that violates the schema.
type SchemaMode string

// The schema modes.
const (
	SchemaRefuse SchemaMode = "refuse" // it is not saved: schema_mismatch
	SchemaReport SchemaMode = "report" // it is saved, and the daemon makes a critical finding
)

// Rule is a rule of the user: an expression that is true if something is wrong.
type Rule struct {
	Name     string   `json:"name"`
	When     string   `json:"when"` // an expression over state, previous, step, run, measures
	Severity Severity `json:"severity"`
	Message  string   `json:"message"`
	// Suspect says whether the saved states are wrong if the rule holds: then, at critical, the
	// checkpoints since are suspect. If it is nil, they are for a rule that reads a state.
	Suspect *bool `json:"suspect,omitempty"`
}

// DefaultPolicy returns the policy of an agent that has no policy of its own.
func DefaultPolicy() Policy {
	return Policy{
		RoutineKeep:  3,
		RecoveryKeep: Duration(7 * Day),

		PreOperationKeep: Duration(30 * Day),

		EndedKeep:  Duration(30 * Day),
		LivesKeep:  20,
		MaxEvents:  100_000,
		Secrets:    SecretsWarn,
		Autoresume: true,

		Sensitivity:        SensitivityNormal,
		Detectors:          map[string]Detector{},
		FalseAlarmsLaxest:  3,
		IgnoreTools:        []string{},
		CheckpointInterval: Duration(30 * time.Minute),
		RefreshAfter:       Duration(2 * time.Hour),
		SchemaMode:         SchemaRefuse,
		SharedKeys:         []string{},
		Settle:             Duration(time.Minute),
		Rules:              []Rule{},

		Durability: DurabilityLocal,
		OnOutage:   OutageRefuse,

		Takeover:    TakeoverManual,
		OnLeaseLost: LeaseLostContinue,
	}
}

// Check refuses settings that contradict themselves or would lose data by mistake.
func (p Policy) Check() error {
	switch {
	case p.RoutineKeep < 0 || p.RoutineKeep > 1_000_000:
		return Errorf(CodeInvalid, "routine_keep is %d: give the number to keep, 1 to 1000000, or 0 to keep all", p.RoutineKeep)
	case time.Duration(p.RecoveryKeep) < time.Second:
		return Errorf(CodeInvalid, "recovery_keep is %s: it must be at least 1s", p.RecoveryKeep)
	case p.PreOperationKeep != 0 && time.Duration(p.PreOperationKeep) < time.Second:
		return Errorf(CodeInvalid, "pre_operation_keep is %s: it must be at least 1s, or 0s to keep them", p.PreOperationKeep)
	case time.Duration(p.EndedKeep) < time.Second:
		return Errorf(CodeInvalid, "ended_keep is %s: it must be at least 1s", p.EndedKeep)
	case p.LivesKeep < 0 || p.LivesKeep > 1_000_000:
		return Errorf(CodeInvalid, "lives_keep is %d: give the number of earlier lives to keep, 1 to 1000000, or 0 to keep all", p.LivesKeep)
	case p.MaxBytes < 0:
		return Errorf(CodeInvalid, "max_bytes is %d: give a number of bytes, or 0 for no budget", p.MaxBytes)
	}
	if p.MaxEvents < 1 || p.MaxEvents > 10_000_000 {
		return Errorf(CodeInvalid, "max_events is %d: it must be 1 to 10000000", p.MaxEvents)
	}
	if err := checkTimeout("heartbeat_timeout", &p.HeartbeatTimeout); err != nil {
		return err
	}
	if err := checkTimeout("progress_timeout", &p.ProgressTimeout); err != nil {
		return err
	}
	if err := p.checkFleet(); err != nil {
		return err
	}
	switch p.Secrets {
	case SecretsOff, SecretsWarn, SecretsRedact, SecretsReject:
		return p.checkDrift()
	}
	return Errorf(CodeInvalid, "secrets is %q: it must be off, warn, redact or reject", cut(string(p.Secrets)))
}
