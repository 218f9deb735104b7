package cli

import (
	"errors"
	"fmt"
	"strings"

	"github.com/ckptsidecar/ckptsidecar/internal/daemon"
)

// The exit codes. Those of the daemon itself come from internal/daemon.
const (
	ExitDone     = 0
	ExitFailed   = 1
	ExitUsage    = 2
	ExitNotFound = 3
	ExitConflict = 4
	ExitDamaged  = 5
	ExitTryLater = 75 // EX_TEMPFAIL: no daemon, or it is too busy
)

// ExitError is an error with an exit code of its own.
type ExitError struct {
	Code    int
	Message string // empty if the command has already said everything
}

// Error is the message, which may be empty.
func (e *ExitError) Error() string { return e.Message }

// StopFirst says what to do if a daemon has the database that a command needs for itself.
// Other errors stay as they are.
func StopFirst(err error, database string) error {
	if errors.Is(err, daemon.ErrRunning) {
		return &ExitError{Code: ExitConflict, Message: fmt.Sprintf("a daemon has %s: stop it first (ckptsidecar service stop)", database)}
	}
	return err
}

// Usagef makes an error for a mistake in how the command was called.
func Usagef(format string, args ...any) error {
	return &UsageError{message: fmt.Sprintf(format, args...)}
}

// UsageError is a mistake in how a command was called.
type UsageError struct {
	message string
	list    []string // each on a line of its own
}

// Error is the message, with the list.
func (e *UsageError) Error() string {
	return strings.Join(append([]string{e.message}, e.list...), "\n  ")
}
