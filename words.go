package ckptsidecar

// Kind says why a checkpoint was taken, which decides how long it stays.
type Kind string

// The kinds of checkpoints.
const (
	KindRoutine      Kind = "routine"       // regular; the newest few stay
	KindPreOperation Kind = "pre_operation" // before something risky; stays until it succeeded
	KindRecovery     Kind = "recovery"      // on error or drift; stays by age
)

// Kinds lists every kind, in the order in which people read them.
var Kinds = []Kind{KindRoutine, KindPreOperation, KindRecovery}

// RunStatus is where a run stands.
type RunStatus string

// The statuses of a run. RunStarting is never stored: it is what a run that
// has registered and saved nothing yet is shown as.
const (
	RunStarting             RunStatus = "starting"
	RunRunning              RunStatus = "running"
	RunSuspended            RunStatus = "suspended"
	RunAwaitingContinuation RunStatus = "awaiting_continuation"
	RunInterrupted          RunStatus = "interrupted"
	RunTimedOut             RunStatus = "timed_out"
	RunCompleted            RunStatus = "completed"
	RunFailed               RunStatus = "failed"
)

// Resumable says whether a run of this status may go on.
func (s RunStatus) Resumable() bool {
	switch s {
	case RunStarting, RunRunning, RunSuspended, RunAwaitingContinuation, RunInterrupted, RunTimedOut:
		return true
	}
	return false
}

// OperationStatus is where an operation stands.
type OperationStatus string

// The statuses of an operation. An uncertain one lost its owner before it
// ended, so nobody knows whether the world changed.
const (
	OperationOpen      OperationStatus = "open"
	OperationSucceeded OperationStatus = "succeeded"
	OperationFailed    OperationStatus = "failed"
	OperationUncertain OperationStatus = "uncertain"
)

// SecretsMode says what happens to a state in which something looks like a secret.
type SecretsMode string

// The modes of handling secrets in states.
const (
	SecretsOff    SecretsMode = "off"    // do not look
	SecretsWarn   SecretsMode = "warn"   // save, and make a finding that names the place
	SecretsRedact SecretsMode = "redact" // replace the values before saving
	SecretsReject SecretsMode = "reject" // refuse the save
)

// MainRun is the run that exists by itself in every agent.
const MainRun = "main"

// AllOwners as an owner means everybody's; only an administrator may say it.
const AllOwners = "*"
