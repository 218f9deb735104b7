package view

import (
	"fmt"
	"strings"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/cli/term"
)

// CheckRunStatus refuses a text that is not a status of a run.
func CheckRunStatus(status string) error {
	var all []string
	for _, s := range ckpt.RunStatuses {
		if status == string(s) {
			return nil
		}
		all = append(all, string(s))
	}
	return fmt.Errorf("status %q is unknown: use %s", status, strings.Join(all, ", "))
}

// RunStatus returns a run's status, in the color of its meaning.
func RunStatus(r ckpt.RunStatus, s *term.Style) string {
	switch r {
	case ckpt.RunRunning, ckpt.RunCompleted:
		return s.Green(string(r))
	case ckpt.RunInterrupted, ckpt.RunTimedOut, ckpt.RunAwaitingContinuation, ckpt.RunSuspended:
		return s.Yellow(string(r))
	case ckpt.RunFailed:
		return s.Red(string(r))
	default:
		return string(r)
	}
}
