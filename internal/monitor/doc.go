// Package monitor notices when the owner of a run has died, is silent, or makes no progress, so that the
// run can be resumed.
//
// [Processes] looks at the processes of this machine. It does not mistake a process that reuses a number
// for the old one. [Judge] decides and is pure. [Monitor] checks the running runs again and again; its
// first round is the sweep after a crash. To interrupt a run (its open steps, its open operations, a
// prompt) is one transaction of the store. DESIGN.md in this folder has the decisions.
//
// This package may import the root package, internal/liveness, internal/periodic, the standard library and
// golang.org/x/sys.
package monitor
