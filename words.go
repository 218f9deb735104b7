package ckptsidecar

// Kind is the reason why a checkpoint was saved. It decides how long the checkpoint stays.
type Kind string

// The kinds of checkpoints.
const (
	KindRoutine      Kind = "routine"       // regular; the newest few stay
	KindPreOperation Kind = "pre_operation" // before something risky; stays until it succeeded
	KindRecovery     Kind = "recovery"      // on error or drift; stays by age
)

// Kinds lists every kind, in the order that people expect.
var Kinds = []Kind{KindRoutine, KindPreOperation, KindRecovery}

// RunStatus is the status of a run.
type RunStatus string

// The statuses of a run. RunStarting is never stored: it is shown for a run that has registered and
// saved nothing yet.
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

// Resumable reports whether a run of this status can be resumed.
func (s RunStatus) Resumable() bool {
	switch s {
	case RunStarting, RunRunning, RunSuspended, RunAwaitingContinuation, RunInterrupted, RunTimedOut:
		return true
	}
	return false
}

// SecretsMode is what happens to a state that seems to contain a secret.
type SecretsMode string

// The modes of handling secrets in states.
const (
	SecretsOff    SecretsMode = "off"    // do not look
	SecretsWarn   SecretsMode = "warn"   // save, and make a finding that names the place
	SecretsRedact SecretsMode = "redact" // replace the values before saving
	SecretsReject SecretsMode = "reject" // refuse the save
)

// MainRun is the default run of every agent.
const MainRun = "main"

// AllOwners as an owner means all owners. Only an administrator may use it.
const AllOwners = "*"
