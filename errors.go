package ckptsidecar

import (
	"errors"
	"fmt"
	"time"
)

// Code classifies an error for programs. One table in internal/ipc maps each code to an HTTP
// status.
type Code string

// The codes of errors.
const (
	CodeInvalid             Code = "invalid"              // the request is wrong; repeating it does not help
	CodeDenied              Code = "denied"               // only an administrator may do this
	CodeNotFound            Code = "not_found"            // it does not exist, or belongs to another user
	CodeConflict            Code = "conflict"             // the request contradicts the stored data
	CodeUncertainOperation  Code = "uncertain_operation"  // nobody knows whether an operation took effect: resolve it first
	CodeFenced              Code = "fenced"               // a newer owner has taken the run over
	CodeBaseMissing         Code = "base_missing"         // the base of a change no longer exists: send the whole state
	CodeFilesMissing        Code = "files_missing"        // contents or a tree of files are missing or were removed: store them again
	CodeTooLarge            Code = "too_large"            // over a size limit
	CodeIdempotencyMismatch Code = "idempotency_mismatch" // the same key was used with another request
	CodeSchemaMismatch      Code = "schema_mismatch"      // the state violates the agent's schema
	CodeQuota               Code = "quota"                // the owner's share is used up
	CodeBusy                Code = "busy"                 // too many requests, or the database is locked: try again
	CodeCorrupt             Code = "corrupt"              // stored data is damaged and is not served
	CodeStorageFull         Code = "storage_full"         // no room on the disk or in the database
	CodeNotReplicated       Code = "not_replicated"       // on this host's disk, but the engine of the fleet does not have it: try again
	CodeInternal            Code = "internal"             // a fault of the daemon
)

// Codes lists every code.
var Codes = []Code{
	CodeInvalid, CodeDenied, CodeNotFound, CodeConflict, CodeUncertainOperation, CodeFenced, CodeBaseMissing, CodeFilesMissing,
	CodeTooLarge, CodeIdempotencyMismatch, CodeSchemaMismatch, CodeQuota, CodeBusy,
	CodeCorrupt, CodeStorageFull, CodeNotReplicated, CodeInternal,
}

// Outcome is what is known about a write whose answer is an error.
type Outcome string

// The outcomes of a write.
const (
	OutcomeSaved    Outcome = "saved"     // on disk
	OutcomeNotSaved Outcome = "not_saved" // certainly not on disk
	OutcomeUnknown  Outcome = "unknown"   // ask again with the same idempotency key
)

// Error is the only error type of the product.
type Error struct {
	Code       Code
	Message    string        // one sentence: what is wrong, where, and what to do; never a payload
	Outcome    Outcome       // "" means not_saved
	RetryAfter time.Duration // when to try again; 0 if a retry does not help or is up to the caller
	Missing    []string      // the SHA-256s of the contents, or the ids of the trees, that are missing
	Host       string        // the host of the fleet that has the run; set with fenced and conflict, if it is known
	Term       int64         // the term under which that host owns the run
	Err        error         // the cause, for the log only
}

// Errorf returns an error with a code and a message for people.
func Errorf(code Code, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...)}
}

// Wrap returns an error with a code and a cause. The cause stays out of the reply.
func Wrap(code Code, cause error, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...), Err: cause}
}

func (e *Error) Error() string {
	if e.Err != nil {
		return fmt.Sprintf("%s: %s: %v", e.Code, e.Message, e.Err)
	}
	return fmt.Sprintf("%s: %s", e.Code, e.Message)
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Retryable reports whether the same request may succeed later.
func (e *Error) Retryable() bool {
	switch e.Code {
	case CodeBusy, CodeStorageFull, CodeQuota, CodeNotReplicated:
		return true
	}
	return e.Outcome == OutcomeUnknown
}

// OutcomeOrDefault returns the outcome, or not_saved if none was set.
func (e *Error) OutcomeOrDefault() Outcome {
	if e.Outcome == "" {
		return OutcomeNotSaved
	}
	return e.Outcome
}

// AsError returns the *Error in err. It turns any other error into an internal one.
func AsError(err error) *Error {
	var e *Error
	if errors.As(err, &e) {
		return e
	}
	return Wrap(CodeInternal, err, "the daemon had an internal error: read the daemon's log")
}

// NotDoneError is an operation that is known not to have happened.
type NotDoneError struct{ Err error }

// NotDone marks the error of an operation: it is known that the operation did not happen. Every other error leaves the
// operation uncertain.
func NotDone(err error) error { return &NotDoneError{err} }

func (e *NotDoneError) Error() string { return "not done: " + e.Err.Error() }

// Unwrap returns the reason.
func (e *NotDoneError) Unwrap() error { return e.Err }

// CodeOf returns the code of err, or "" for nil.
func CodeOf(err error) Code {
	if err == nil {
		return ""
	}
	return AsError(err).Code
}
