// Package liveness has the words in which the store and who looks at processes
// speak of them.
//
// It may import the standard library only.
package liveness

import "time"

// Run is what the monitor needs of a running run.
type Run struct {
	ID               int64
	Owner            string
	Agent            string
	Run              string
	Epoch            int64
	Process          Process
	LastBeat         time.Time // the last heartbeat, or the last write
	LastProgress     time.Time // when progress last grew
	HeartbeatTimeout time.Duration
	ProgressTimeout  time.Duration
	Asks             bool // a question of the run is open, so it may wait for a person
}

// Process is a process that no later one of the same number can be taken for.
type Process struct {
	PID   int    `json:"pid"`
	Start string `json:"start"` // when it began, as the system counts; "" where not known
	Boot  string `json:"boot"`  // which boot of the machine
}

// State is what can be said of a process.
type State int

// The answers about a process.
const (
	Unknown State = iota
	Alive
	Dead
)

// Processes looks at the processes of this machine. internal/monitor has the
// real one; the store takes it as a value.
type Processes interface {
	// Identify answers what tells the process from every other; PID 0 for none.
	Identify(pid int) Process
	// Named answers which process a caller means by a number: the caller may be in
	// another process namespace, whose numbers are its own. PID 0 where that cannot be
	// told.
	Named(caller, pid int) Process
	// Here is the number that a caller in another process namespace sees of a process.
	// It is 0 where the namespace is the same, or that cannot be told.
	Here(caller, pid int) int
	// Owner is whose process has a number now, as Caller.Owner has it: "" where
	// that cannot be told.
	Owner(pid int) string
	// Alive says whether that very process still runs.
	Alive(p Process) State
	// Stranger says whether the process with a number began before an instant and
	// has nothing to do with another one: neither began the other, at any remove.
	// It is false where that cannot be told.
	Stranger(pid int, of Process, before time.Time) bool
}
