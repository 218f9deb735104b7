package survey

import ckpt "github.com/ckptsidecar/ckptsidecar"

// MaxForecast is the most checkpoints that a list of a forecast names.
const (
	MaxForecast     = 1000
	DefaultForecast = 100
)

// ForecastQuery asks what retention removes next. Values in it replace those of the
// policies, to show what would be removed if they were set.
//
//	GET /v1/retention/forecast?routine_keep=5&recovery_keep=24h
//	GET /v1/agents/{agent}/retention/forecast
type ForecastQuery struct {
	Agent            string // "" means every agent of the owner
	RoutineKeep      *int
	RecoveryKeep     *ckpt.Duration
	PreOperationKeep *ckpt.Duration
	EndedKeep        *ckpt.Duration
	MaxBytes         *int64 // the budget of each agent
	Limit            int    // of each list; 0 means 100, at most MaxForecast
}

// Check refuses a query that is invalid in itself.
func (q *ForecastQuery) Check() error {
	if q.Agent != "" {
		if err := ckpt.CheckAgentName(q.Agent); err != nil {
			return err
		}
	}
	if q.Limit < 0 || q.Limit > MaxForecast {
		return ckpt.Errorf(ckpt.CodeInvalid, "limit must be between 1 and %[2]d; got %[1]d", q.Limit, MaxForecast)
	}
	for name, d := range map[string]*ckpt.Duration{"recovery_keep": q.RecoveryKeep,
		"pre_operation_keep": q.PreOperationKeep, "ended_keep": q.EndedKeep} {
		if d != nil && *d < 0 {
			return ckpt.Errorf(ckpt.CodeInvalid, "%s is %s: it must be a duration, or 0 to keep all", name, *d)
		}
	}
	if q.RoutineKeep != nil && *q.RoutineKeep < 0 || q.MaxBytes != nil && *q.MaxBytes < 0 {
		return ckpt.Errorf(ckpt.CodeInvalid, "routine_keep and max_bytes must be 0 or more")
	}
	return nil
}

// WhatIf reports whether the query asks about values other than those of the policies.
func (q *ForecastQuery) WhatIf() bool {
	return q.RoutineKeep != nil || q.RecoveryKeep != nil || q.PreOperationKeep != nil || q.EndedKeep != nil || q.MaxBytes != nil
}

// Over returns a policy in which the values of the query replace the policy's own.
func (q *ForecastQuery) Over(p ckpt.Policy) ckpt.Policy {
	if q.RoutineKeep != nil {
		p.RoutineKeep = *q.RoutineKeep
	}
	if q.RecoveryKeep != nil {
		p.RecoveryKeep = *q.RecoveryKeep
	}
	if q.PreOperationKeep != nil {
		p.PreOperationKeep = *q.PreOperationKeep
	}
	if q.EndedKeep != nil {
		p.EndedKeep = *q.EndedKeep
	}
	if q.MaxBytes != nil {
		p.MaxBytes = *q.MaxBytes
	}
	return p
}

// When a checkpoint is removed.
const (
	GoesNow      = "now"       // the rules remove it at once: with the run's next save, or in retention's next round
	GoesNextSave = "next_save" // the next routine save of its run removes it
	GoesByAge    = "age"       // it is removed at the time At, if the clock is trusted then
	GoesByBudget = "budget"    // it stays, and is next to be removed if its agent reaches its size budget
)

// Forecast is what retention removes next, and what it keeps for which reason.
type Forecast struct {
	At      ckpt.Time `json:"at"`
	Guarded bool      `json:"guarded"` // nothing is removed by age now: the daemon has just started, or the clock jumped
	WhatIf  bool      `json:"what_if"` // values of the query replace those of the policies

	Going     []Going `json:"going"`      // in the order of removal
	MoreGoing int64   `json:"more_going"` // how many did not fit into the list
	Bytes     int64   `json:"bytes"`      // stored by the checkpoints to be removed; fewer may become free

	// Keeping counts the checkpoints that stay, by the rule that keeps them.
	Keeping []Keeping `json:"keeping"`
}

// Going is a checkpoint that will be removed.
type Going struct {
	Owner      string    `json:"owner"`
	Agent      string    `json:"agent"`
	Run        string    `json:"run"`
	Checkpoint string    `json:"checkpoint"`
	Kind       ckpt.Kind `json:"kind"`
	Seq        int64     `json:"seq"`
	CreatedAt  ckpt.Time `json:"created_at"`
	StoredSize int64     `json:"stored_size"`
	When       string    `json:"when"`   // one of the constants above
	Goes       ckpt.Time `json:"goes"`   // the time, for age; null otherwise
	Reason     string    `json:"reason"` // what the audit log will say, or why it is next
}

// Keeping says how many checkpoints one rule keeps.
type Keeping struct {
	Rule        string `json:"rule"` // in words: pinned, needed by a prompt, among the newest 3 routine checkpoints, …
	Checkpoints int64  `json:"checkpoints"`
	Bytes       int64  `json:"bytes"`
}
