package ckptsidecar

import "time"

// Policy is an agent's settings. What a stored or sent policy leaves out has
// the default.
type Policy struct {
	RoutineKeep  int         `json:"routine_keep"`  // how many routine checkpoints of a run stay; 0 keeps all
	RecoveryKeep Duration    `json:"recovery_keep"` // how long a recovery checkpoint stays
	EndedKeep    Duration    `json:"ended_keep"`    // how long an ended run and its checkpoints stay
	MaxBytes     int64       `json:"max_bytes"`     // budget of stored bytes; 0 for none
	MaxEvents    int         `json:"max_events"`    // of a run; the oldest go
	Secrets      SecretsMode `json:"secrets"`

	Autoresume       bool     `json:"autoresume"`        // an interrupted run waits to be resumed; without it an operator is asked
	HeartbeatTimeout Duration `json:"heartbeat_timeout"` // of runs that set none themselves; 0 for none
	ProgressTimeout  Duration `json:"progress_timeout"`  // likewise
}

// DefaultPolicy is the policy of an agent that has set none.
func DefaultPolicy() Policy {
	return Policy{
		RoutineKeep:  3,
		RecoveryKeep: Duration(7 * Day),
		EndedKeep:    Duration(30 * Day),
		MaxEvents:    100_000,
		Secrets:      SecretsWarn,
		Autoresume:   true,
	}
}

// Check refuses settings that contradict themselves or would lose data by mistake.
func (p Policy) Check() error {
	switch {
	case p.RoutineKeep < 0 || p.RoutineKeep > 1_000_000:
		return Errorf(CodeInvalid, "routine_keep is %d: say how many to keep, 1 to 1000000, or 0 to keep all", p.RoutineKeep)
	case time.Duration(p.RecoveryKeep) < time.Second:
		return Errorf(CodeInvalid, "recovery_keep is %s: it must be at least 1s", p.RecoveryKeep)
	case time.Duration(p.EndedKeep) < time.Second:
		return Errorf(CodeInvalid, "ended_keep is %s: it must be at least 1s", p.EndedKeep)
	case p.MaxBytes < 0:
		return Errorf(CodeInvalid, "max_bytes is %d: say a number of bytes, or 0 for no budget", p.MaxBytes)
	}
	if p.MaxEvents < 1 || p.MaxEvents > 10_000_000 {
		return Errorf(CodeInvalid, "max_events is %d: say 1 to 10000000", p.MaxEvents)
	}
	if err := checkTimeout("heartbeat_timeout", &p.HeartbeatTimeout); err != nil {
		return err
	}
	if err := checkTimeout("progress_timeout", &p.ProgressTimeout); err != nil {
		return err
	}
	switch p.Secrets {
	case SecretsOff, SecretsWarn, SecretsRedact, SecretsReject:
		return nil
	}
	return Errorf(CodeInvalid, "secrets is %q: it is off, warn, redact or reject", cut(string(p.Secrets)))
}

// ParsePolicy reads a policy over the defaults, strictly.
func ParsePolicy(data []byte) (Policy, error) {
	p := DefaultPolicy()
	if err := DecodeStrict(data, &p); err != nil {
		return Policy{}, Errorf(CodeInvalid, "the policy is wrong: %v", err)
	}
	return p, p.Check()
}
