package cli

import (
	"context"
	"encoding/json"
	"errors"
	"strings"

	ckpt "github.com/ckptsidecar/ckptsidecar"

	"github.com/ckptsidecar/ckptsidecar/internal/cli/term"
	"github.com/ckptsidecar/ckptsidecar/internal/daemon"
)

// Fail reports the error and returns the exit code; nil is success.
func (a *App) Fail(err error) int {
	if err == nil {
		return ExitDone
	}
	code, message := ExitCode(err), MessageOf(err)
	switch {
	case message == "":
	case a.JSON && (a.jsonErrors || !a.Shaped()):
		a.failJSON(err, code, message)
	default:
		a.say(err, message)
	}
	return code
}

// say writes the error for people. Line breaks in a message are escaped; only a list has lines.
func (a *App) say(err error, message string) {
	var usage *UsageError
	var settings *daemon.EndError
	var list []string
	switch {
	case errors.As(err, &usage):
		message, list = usage.message, usage.list
	case errors.As(err, &settings): // a list with each mistake in the settings
		lines := strings.Split(message, "\n")
		message, list = lines[0], lines[1:]
	}
	term.Printf(a.Stderr, "%s %s\n", a.Err.Red("ckptsidecar:"), message)
	for _, line := range list {
		term.Printf(a.Stderr, "  %s\n", line)
	}
}

// failJSON writes the error for programs, in the form of the API.
func (a *App) failJSON(err error, code int, message string) {
	shape := struct {
		Code      ckpt.Code    `json:"code,omitempty"`
		Detail    string       `json:"detail"`
		Outcome   ckpt.Outcome `json:"outcome,omitempty"`
		Retryable bool         `json:"retryable"`
		Exit      int          `json:"exit_code"`
	}{Detail: message, Retryable: code == ExitTryLater, Exit: code}
	var e *ckpt.Error
	if errors.As(err, &e) {
		shape.Code, shape.Outcome, shape.Retryable = e.Code, e.OutcomeOrDefault(), e.Retryable()
	}
	_ = json.NewEncoder(a.Stderr).Encode(shape)
}

// ExitCode is the only place where errors become exit codes.
func ExitCode(err error) int {
	var (
		exit  *ExitError
		usage *UsageError
		end   *daemon.EndError
		e     *ckpt.Error
		quiet *SilentError
	)
	switch {
	case errors.As(err, &exit):
		return exit.Code
	case errors.As(err, &usage):
		return ExitUsage
	case errors.As(err, &end):
		return end.ExitCode
	case errors.As(err, &e):
		return exitOf(e)
	case daemon.Unreachable(err), errors.As(err, &quiet):
		return ExitTryLater
	}
	return ExitFailed
}

func exitOf(e *ckpt.Error) int {
	switch e.Code {
	case ckpt.CodeNotFound:
		return ExitNotFound
	case ckpt.CodeConflict, ckpt.CodeUncertainOperation, ckpt.CodeFenced, ckpt.CodeBaseMissing, ckpt.CodeFilesMissing, ckpt.CodeIdempotencyMismatch:
		return ExitConflict
	case ckpt.CodeCorrupt:
		return ExitDamaged
	}
	if e.Retryable() {
		return ExitTryLater
	}
	return ExitFailed
}

// MessageOf returns the sentence for people: without the code's name, and with advice if trying
// again helps.
func MessageOf(err error) string {
	var e *ckpt.Error
	switch {
	case errors.Is(err, context.Canceled):
		return "interrupted before it finished"
	case !errors.As(err, &e):
		return strings.TrimSpace(err.Error())
	}
	message := e.Message
	if e.Outcome == ckpt.OutcomeUnknown {
		message += " (the daemon may or may not have saved it; send it again with the same id, and it is saved only once)"
	}
	return message
}

// Checked turns an error about an argument into a mistake of usage, before
// anything is sent.
func Checked(errs ...error) error {
	for _, err := range errs {
		var e *ckpt.Error
		if errors.As(err, &e) {
			return Usagef("%s", e.Message)
		}
		if err != nil {
			return Usagef("%v", err)
		}
	}
	return nil
}
