package db

import (
	"context"
	"errors"
	"fmt"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"modernc.org/sqlite"
)

// class is what a SQLite result code means for a write. The reasons, measured
// one by one, are in DESIGN.md beside this file.
type class int

const (
	classNone      class = iota // not an error of SQLite
	classTransient              // the whole transaction may be tried again
	classOnce                   // likewise, but once only
	classFull                   // no room: refuse, stay up
	classFatal                  // what is on disk is not known any more: stop acknowledging
	classOperator               // somebody must mend the file or its rights
	classClient                 // a constraint or a size: the request's fault
	classBug                    // ours
)

// classes is by extended result code; what is missing here is looked up by its
// primary code.
var classes = map[int]class{
	5: classTransient, 261: classTransient, 773: classTransient, 517: classTransient, // BUSY and its kinds
	6: classTransient, 262: classTransient, 15: classTransient, // LOCKED, PROTOCOL
	7: classOnce, 3082: classOnce, // NOMEM, IOERR_NOMEM
	13:   classFull,
	1034: classFatal, 1290: classFatal, 778: classFatal, 266: classFatal, 522: classFatal, 1546: classFatal,
	8202: classFatal, 8458: classFatal, 8714: classFatal, 4618: classFatal, 4874: classFatal, 5130: classFatal,
	5386: classFatal, 2570: classFatal, 3850: classFatal, 1032: classFatal,
	10: classFatal, 11: classFatal, 779: classFatal, 26: classFatal,
	14: classOperator, 8: classOperator, 3: classOperator, 23: classOperator, 22: classOperator,
	19: classClient, 18: classClient,
	21: classBug, 1: classBug, 2: classBug,
}

// sqliteCode is the extended result code of err, 0 where it has none.
func sqliteCode(err error) int {
	var e *sqlite.Error
	if errors.As(err, &e) {
		return e.Code()
	}
	return 0
}

// classify decides by number, never by text.
func classify(err error) class { return classOf(sqliteCode(err)) }

func classOf(code int) class {
	if code == 0 {
		return classNone
	}
	if c, ok := classes[code]; ok {
		return c
	}
	if c, ok := classes[code&0xff]; ok {
		return c
	}
	return classBug
}

// readError turns what a read met into the product's error.
func readError(err error) error {
	var e *ckpt.Error
	switch {
	case err == nil:
		return nil
	case errors.As(err, &e):
		return err
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return ckpt.Wrap(ckpt.CodeBusy, err, "the read was given up because the client's time was over")
	}
	switch classify(err) {
	case classTransient, classOnce:
		return ckpt.Wrap(ckpt.CodeBusy, err, "the database is locked just now: try again")
	case classFatal:
		return ckpt.Wrap(ckpt.CodeCorrupt, err, "the database cannot be read here (SQLite result %d): run ckptsidecar verify", sqliteCode(err))
	case classOperator:
		return ckpt.Wrap(ckpt.CodeInternal, err, "the database cannot be opened (SQLite result %d): run ckptsidecar doctor", sqliteCode(err))
	}
	return ckpt.Wrap(ckpt.CodeInternal, err, "reading failed inside the daemon; its log says how")
}

// OperatorError is what stops a start until somebody has mended it.
type OperatorError struct {
	Message string
	Err     error
}

func (e *OperatorError) Error() string {
	if e.Err == nil {
		return e.Message
	}
	return fmt.Sprintf("%s (%v)", e.Message, e.Err)
}

// Unwrap gives the cause.
func (e *OperatorError) Unwrap() error { return e.Err }

// ErrLocked is the error of Open where another daemon has the database.
var ErrLocked = errors.New("already running: another daemon has this database open")

// FatalError is a fail-stop: the store has stopped acknowledging because what
// is on disk is not known any more. A fresh process decides.
type FatalError struct{ Err error }

func (e *FatalError) Error() string {
	if isLockFault(e.Err) {
		return fmt.Sprintf("stopped acknowledging, because the writer does not get on: %v", e.Err)
	}
	return fmt.Sprintf("stopped acknowledging, because what is on disk is not certain any more: %v", e.Err)
}

// Unwrap gives the cause.
func (e *FatalError) Unwrap() error { return e.Err }
