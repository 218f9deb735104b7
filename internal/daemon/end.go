package daemon

import (
	"errors"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db"
	"github.com/ckptsidecar/ckptsidecar/internal/ipc/endpoint"
)

// The exit codes of the daemon. A service manager restarts the daemon after ExitFault, but not
// after the others.
const (
	ExitRunning  = 4  // another daemon has the database or the endpoint
	ExitFault    = 74 // EX_IOERR: it stopped itself because it was not certain what is on disk
	ExitOperator = 78 // EX_CONFIG: a person must fix something first
)

// EndError is the reason why a daemon ended, with the exit code that tells the service manager
// whether to restart it.
type EndError struct {
	ExitCode int
	Err      error
}

func (e *EndError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *EndError) Unwrap() error { return e.Err }

// Misconfigured returns the error of a daemon whose settings are wrong. A restart would not
// help.
func Misconfigured(err error) error { return &EndError{ExitOperator, err} }

// endOfStart chooses the exit code for an error that stopped a start. A problem that can pass
// by itself, such as a locked database, is worth another start. An unknown problem is not,
// because a restart loop helps nobody.
func endOfStart(err error) *EndError {
	var refusal *ckpt.Error
	var fatal *db.FatalError
	switch {
	case errors.Is(err, db.ErrLocked), errors.Is(err, endpoint.ErrInUse):
		return &EndError{ExitRunning, err}
	case errors.As(err, &fatal), errors.As(err, &refusal) && refusal.Retryable():
		return &EndError{ExitFault, err}
	}
	return &EndError{ExitOperator, err}
}
