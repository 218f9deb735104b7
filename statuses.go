package ckptsidecar

import "slices"

// The statuses that can be used to filter a list.
var (
	RunStatuses = []RunStatus{
		RunStarting, RunRunning, RunSuspended, RunAwaitingContinuation,
		RunInterrupted, RunTimedOut, RunCompleted, RunFailed,
	}
	StepStatuses      = []StepStatus{StepStarted, StepSucceeded, StepFailed, StepInterrupted}
	OperationStatuses = []OperationStatus{OperationOpen, OperationSucceeded, OperationFailed, OperationUncertain, OperationSuperseded}
)

// CheckStatus accepts "" and the statuses that can filter a list.
func CheckStatus[S ~string](what string, status S, known []S) error {
	if status == "" || slices.Contains(known, status) {
		return nil
	}
	return Errorf(CodeInvalid, "the %s status %q is unknown: it is one of %q", what, cut(string(status)), known)
}
