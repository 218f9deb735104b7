package ckptsidecar

import "slices"

// The statuses that a list may be asked for.
var (
	RunStatuses       = []RunStatus{RunStarting, RunRunning, RunSuspended, RunAwaitingContinuation, RunInterrupted, RunTimedOut, RunCompleted, RunFailed}
	StepStatuses      = []StepStatus{StepStarted, StepSucceeded, StepFailed, StepInterrupted}
	OperationStatuses = []OperationStatus{OperationOpen, OperationSucceeded, OperationFailed, OperationUncertain}
)

// CheckStatus accepts "" and the statuses of a list.
func CheckStatus[S ~string](what string, status S, known []S) error {
	if status == "" || slices.Contains(known, status) {
		return nil
	}
	return Errorf(CodeInvalid, "the %s status %q is unknown: it is one of %q", what, cut(string(status)), known)
}
