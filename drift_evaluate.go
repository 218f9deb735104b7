package ckptsidecar

// EvaluateRequest asks in which recorded runs a rule would have warned.
type EvaluateRequest struct {
	Agent       string              `json:"agent,omitempty"`        // "" means all agents of the owner
	Workflow    string              `json:"workflow,omitempty"`     // "" means all workflows
	Since       *Time               `json:"since,omitempty"`        // runs that began at this time or later
	Run         string              `json:"run,omitempty"`          // only this run of the agent, reported step by step
	Detectors   map[string]Detector `json:"detectors,omitempty"`    // replaces what the agents' policies say of these rules
	Sensitivity Sensitivity         `json:"sensitivity,omitempty"`  // replaces the sensitivity of the policies
	FalseAlarms *Percent            `json:"false_alarms,omitempty"` // replaces the share in the policies
	MaxSteps    int64               `json:"max_steps,omitempty"`    // judge at most this many steps; 0 means MaxEvaluated
}

// The limits of an evaluation.
const (
	MaxEvaluated     = 200_000 // steps
	MaxEvaluatedRuns = 5000
	MaxWarnedRuns    = 500 // runs that the answer names
)

// Check refuses an invalid request.
func (r *EvaluateRequest) Check() error {
	if err := optional(r.Agent, CheckAgentName); err != nil {
		return err
	}
	if err := optional(r.Run, CheckLife); err != nil {
		return err
	}
	switch {
	case r.Run != "" && r.Agent == "":
		return Errorf(CodeInvalid, "run is %q, but no agent is named: name the agent of the run", cut(r.Run))
	case r.MaxSteps < 0 || r.MaxSteps > MaxEvaluated:
		return Errorf(CodeInvalid, "max_steps is %d: give 1 to %d, or 0 for the most that are allowed", r.MaxSteps, MaxEvaluated)
	}
	p := DefaultPolicy()
	r.Change(&p)
	if err := checkLong("workflow", r.Workflow); err != nil {
		return err
	}
	return p.checkDrift()
}

// Change applies the request's settings to a policy.
func (r *EvaluateRequest) Change(p *Policy) {
	if len(r.Detectors) > 0 {
		all := make(map[string]Detector, len(p.Detectors)+len(r.Detectors))
		for name, d := range p.Detectors {
			all[name] = d
		}
		for name, d := range r.Detectors {
			all[name] = d
		}
		p.Detectors = all
	}
	if r.Sensitivity != "" {
		p.Sensitivity = r.Sensitivity
	}
	if r.FalseAlarms != nil {
		p.FalseAlarms = *r.FalseAlarms
	}
}

// Evaluation lists the recorded runs in which the detectors would have fired.
type Evaluation struct {
	Runs         int             `json:"runs"`  // the number of runs that were judged
	Steps        int64           `json:"steps"` // the number of steps in them
	More         bool            `json:"more"`  // there are more runs, which were not judged because there are too many
	Rows         []EvaluatedRow  `json:"rows"`
	Warned       []WarnedRun     `json:"warned"`       // runs in which a rule warned, the first MaxWarnedRuns of them
	Calibrations []Calibration   `json:"calibrations"` // as they are after the last run, if a policy asks for them
	Explained    []ExplainedStep `json:"explained,omitempty"`
}

// EvaluatedRow is the result for one source, workflow and outcome, one tier and one rule. If the
// rule is "", it is the result for the whole tier.
type EvaluatedRow struct {
	Source   string   `json:"source"`
	Workflow Ref      `json:"workflow"`
	Outcome  string   `json:"outcome"`
	Runs     int      `json:"runs"`
	Tier     Severity `json:"tier"`
	Rule     string   `json:"rule"`
	Fired    int      `json:"fired"`        // the number of runs in which it fired
	Share    float64  `json:"share"`        // of the runs, 0 to 1
	Low      float64  `json:"low"`          // the 95 % interval of the share (Wilson)
	High     float64  `json:"high"`         // the upper end of the interval
	Delay    *float64 `json:"median_delay"` // in steps, over the runs in which it fired; null if it never fired
}

// WarnedRun is a run in which rules fired, and where each rule fired first.
type WarnedRun struct {
	Source   string       `json:"source"`
	Run      string       `json:"run"`
	Workflow Ref          `json:"workflow"`
	Outcome  string       `json:"outcome"`
	Steps    int          `json:"steps"`
	First    []FirstFired `json:"first"` // in the order in which they fired
}

// FirstFired is where a rule first reached a severity in a run.
type FirstFired struct {
	Rule     string   `json:"rule"`
	Severity Severity `json:"severity"`
	Step     int      `json:"step"` // its number, from 0
	Key      string   `json:"key"`  // of the step
	Message  string   `json:"message"`
}

// ExplainedStep is a step or a state of one run, as the detectors saw it.
type ExplainedStep struct {
	Step     int                `json:"step"` // its number, from 0; for a state, the number of the step before it
	What     string             `json:"what"` // step or checkpoint
	Key      string             `json:"key"`  // the key of the step, or the id of the checkpoint
	Tool     string             `json:"tool"` // the tool of the step, or the kind of the checkpoint
	Failed   bool               `json:"failed"`
	Saw      []string           `json:"saw"`    // in words: new, seen before in step 3, negative, unknown call, same turn, …
	Levels   map[string]float64 `json:"levels"` // by rule: how much of what its first tier needs is there; 1 if it is reached
	Findings []FirstFired       `json:"findings"`
}

// DriftFeedback is what operators' dismissals show about an agent's rules.
type DriftFeedback struct {
	Agent string         `json:"agent"`
	Owner string         `json:"owner"`
	Rules []RuleFeedback `json:"rules"` // the rules that have found something, the most dismissed first
}

// RuleFeedback is how often a rule has warned, and how many of these findings were dismissed.
type RuleFeedback struct {
	Rule       string      `json:"rule"`
	Found      int64       `json:"found"` // findings of warn or critical
	Dismissed  int64       `json:"dismissed"`
	Suggestion *Suggestion `json:"suggestion"` // null if nothing was dismissed, or if no setting would have helped
}

// Suggestion is a setting that would have avoided the dismissed findings. It comes from judging the
// recorded runs again.
type Suggestion struct {
	Set       string              `json:"set"`       // "detectors.repeat.warn=6", for policy set
	Detectors map[string]Detector `json:"detectors"` // the same, for a policy
	Spared    int                 `json:"spared"`    // runs with dismissed findings of the rule in which it would not have warned
	Of        int                 `json:"of"`        // all runs with dismissed findings of the rule
	Lost      int                 `json:"lost"`      // runs whose findings nobody dismissed, in which it would not have warned either
	Kept      int                 `json:"kept"`      // the same, but the rule would still have warned
}
