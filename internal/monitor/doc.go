// Package monitor notices when the owner of a run has died, is silent, or gets
// nowhere, so that the run can be resumed.
//
// [Processes] looks at the processes of this machine and is not fooled by a
// reused number. [Judge] decides and is pure. [Monitor] goes over the running
// runs again and again: its first round is the sweep after a crash. What
// interrupting a run means (open steps, open operations, a prompt) is one
// transaction of the store's. DESIGN.md in this folder has the decisions.
//
// This package may import the root package, internal/liveness, internal/periodic, the standard library and
// golang.org/x/sys.
package monitor
