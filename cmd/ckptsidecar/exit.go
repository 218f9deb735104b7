package main

import (
	"context"
	"encoding/json"
	"errors"
	"strings"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/cli"
	"github.com/ckptsidecar/ckptsidecar/internal/cli/term"
	"github.com/ckptsidecar/ckptsidecar/internal/daemon"
)

// fail says what went wrong and gives the exit code; nil is success.
func (a *app) fail(err error) int {
	if err == nil {
		return cli.ExitDone
	}
	code, message := exitCode(err), messageOf(err)
	switch {
	case message == "":
	case a.cli.JSON:
		a.failJSON(err, code, message)
	default:
		term.Printf(a.stderr, "%s %s\n", a.err.Red("ckptsidecar:"), message)
	}
	return code
}

// failJSON writes the error for programs, in the words of the API.
func (a *app) failJSON(err error, code int, message string) {
	shape := struct {
		Code      ckpt.Code    `json:"code,omitempty"`
		Detail    string       `json:"detail"`
		Outcome   ckpt.Outcome `json:"outcome,omitempty"`
		Retryable bool         `json:"retryable"`
		Exit      int          `json:"exit_code"`
	}{Detail: message, Retryable: code == cli.ExitTryLater, Exit: code}
	var e *ckpt.Error
	if errors.As(err, &e) {
		shape.Code, shape.Outcome, shape.Retryable = e.Code, e.OutcomeOrDefault(), e.Retryable()
	}
	_ = json.NewEncoder(a.stderr).Encode(shape)
}

// exitCode is the one place where errors become exit codes.
func exitCode(err error) int {
	var (
		exit  *cli.ExitError
		usage *cli.UsageError
		end   *daemon.EndError
		e     *ckpt.Error
	)
	switch {
	case errors.As(err, &exit):
		return exit.Code
	case errors.As(err, &usage):
		return cli.ExitUsage
	case errors.As(err, &end):
		return end.ExitCode
	case errors.As(err, &e):
		return exitOf(e)
	case daemon.Unreachable(err):
		return cli.ExitTryLater
	}
	return cli.ExitFailed
}

func exitOf(e *ckpt.Error) int {
	switch e.Code {
	case ckpt.CodeNotFound:
		return cli.ExitNotFound
	case ckpt.CodeConflict, ckpt.CodeFenced, ckpt.CodeBaseMissing, ckpt.CodeIdempotencyMismatch:
		return cli.ExitConflict
	case ckpt.CodeCorrupt:
		return cli.ExitDamaged
	}
	if e.Retryable() {
		return cli.ExitTryLater
	}
	return cli.ExitFailed
}

// messageOf is the sentence for people: without the code's name, with what to
// do where trying again is the thing to do.
func messageOf(err error) string {
	var e *ckpt.Error
	switch {
	case errors.Is(err, context.Canceled):
		return "stopped before it was done"
	case !errors.As(err, &e):
		return strings.TrimSpace(err.Error())
	}
	message := e.Message
	if e.Outcome == ckpt.OutcomeUnknown {
		message += " (whether it was saved is not known; send the same again under the same id, it is never saved twice)"
	}
	return message
}

// checked turns what is wrong with an argument into a mistake of usage, before
// anything was sent.
func checked(errs ...error) error {
	for _, err := range errs {
		var e *ckpt.Error
		if errors.As(err, &e) {
			return cli.Usagef("%s", e.Message)
		}
		if err != nil {
			return cli.Usagef("%v", err)
		}
	}
	return nil
}
