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
	CodeInvalid             Code = "invalid"              // the request is wrong; saying it again will not help
	CodeDenied              Code = "denied"               // only an administrator may do this
	CodeNotFound            Code = "not_found"            // missing, or another user's
	CodeConflict            Code = "conflict"             // it contradicts what is there
	CodeFenced              Code = "fenced"               // a newer owner has taken the run over
	CodeBaseMissing         Code = "base_missing"         // the base of a change is gone: send the whole state
	CodeFilesMissing        Code = "files_missing"        // contents or a tree of files are not there, or not any more: store them again
	CodeTooLarge            Code = "too_large"            // over a size limit
	CodeIdempotencyMismatch Code = "idempotency_mismatch" // the same key came with another request
	CodeSchemaMismatch      Code = "schema_mismatch"      // the state breaks the agent's schema
	CodeQuota               Code = "quota"                // the owner's share is used up
	CodeBusy                Code = "busy"                 // too much at once, or the database is locked: try again
	CodeCorrupt             Code = "corrupt"              // stored data is damaged and is not served
	CodeStorageFull         Code = "storage_full"         // no room on the disk or in the database
	CodeNotReplicated       Code = "not_replicated"       // it is on this host's disk, and the engine of the fleet does not have it: try again
	CodeInternal            Code = "internal"             // our fault
)

// Codes lists every code.
var Codes = []Code{
	CodeInvalid, CodeDenied, CodeNotFound, CodeConflict, CodeFenced, CodeBaseMissing, CodeFilesMissing,
	CodeTooLarge, CodeIdempotencyMismatch, CodeSchemaMismatch, CodeQuota, CodeBusy,
	CodeCorrupt, CodeStorageFull, CodeNotReplicated, CodeInternal,
}

// Outcome is what is known about a write that was answered with an error.
type Outcome string

// The outcomes of a write.
const (
	OutcomeSaved    Outcome = "saved"     // on disk
	OutcomeNotSaved Outcome = "not_saved" // certainly not on disk
	OutcomeUnknown  Outcome = "unknown"   // ask again with the same idempotency key
)

// Error is the one error type of the product.
type Error struct {
	Code       Code
	Message    string        // one sentence: what is wrong, where, and what to do; never a payload
	Outcome    Outcome       // "" means not_saved
	RetryAfter time.Duration // when to try again; 0 where trying again will not help or is up to the caller
	Missing    []string      // the SHA-256s of contents, or the ids of trees, that are not there
	Host       string        // of the fleet that owns the run now; with fenced, where it is known
	Term       int64         // under which it owns the run
	Err        error         // the cause, for the log only
}

// Errorf makes an error of a code with a message for people.
func Errorf(code Code, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...)}
}

// Wrap makes an error of a code with a cause that stays out of the reply.
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

// OutcomeOrDefault is the outcome, or not_saved if none was set.
func (e *Error) OutcomeOrDefault() Outcome {
	if e.Outcome == "" {
		return OutcomeNotSaved
	}
	return e.Outcome
}

// AsError finds the *Error in err; any other error becomes an internal one.
func AsError(err error) *Error {
	var e *Error
	if errors.As(err, &e) {
		return e
	}
	return Wrap(CodeInternal, err, "the daemon had an internal error: read the daemon's log")
}

// CodeOf is the code of err, "" for nil.
func CodeOf(err error) Code {
	if err == nil {
		return ""
	}
	return AsError(err).Code
}
