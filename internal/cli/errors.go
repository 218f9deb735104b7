package cli

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/ckptsidecar/ckptsidecar/internal/daemon"
)

// The exit codes. Those of the daemon itself are in internal/daemon.
const (
	ExitDone     = 0
	ExitFailed   = 1
	ExitUsage    = 2
	ExitNotFound = 3
	ExitConflict = 4
	ExitDamaged  = 5
	ExitTryLater = 75 // EX_TEMPFAIL: no daemon, or it is too busy
)

// ExitError is an error with its own exit code.
type ExitError struct {
	Code    int
	Message string // empty if the command has already reported everything
}

// Error returns the message, which can be empty.
func (e *ExitError) Error() string { return e.Message }

// SilentError means that a program listens at the daemon's endpoint and does not answer.
type SilentError struct{ After time.Duration }

// What says what is wrong.
func (e *SilentError) What() string {
	return fmt.Sprintf("the daemon does not answer within %v: it hangs, is stopped, or is still starting", e.After)
}

// Do says what to do.
func (e *SilentError) Do() string {
	return "read its log; if it stays so, restart it: ckptsidecar service restart"
}

// Error says both.
func (e *SilentError) Error() string { return e.What() + "; " + e.Do() }

// StopFirst adds what to do to an error that says that a daemon uses the database that a
// command needs for itself. It returns other errors unchanged.
func StopFirst(err error, database string) error {
	if errors.Is(err, daemon.ErrRunning) {
		return &ExitError{Code: ExitConflict, Message: fmt.Sprintf("a daemon has %s: stop it first (ckptsidecar service stop)", database)}
	}
	return err
}

// Usagef returns an error for a mistake in the arguments of the command.
func Usagef(format string, args ...any) error {
	return &UsageError{message: fmt.Sprintf(format, args...)}
}

// UsageError is a mistake in the arguments of a command.
type UsageError struct {
	message string
	list    []string // each on its own line
}

// Error returns the message, with the list.
func (e *UsageError) Error() string {
	return strings.Join(append([]string{e.message}, e.list...), "\n  ")
}
