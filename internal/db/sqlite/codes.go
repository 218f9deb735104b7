package sqlite

import (
	"context"
	"errors"
	"fmt"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"modernc.org/sqlite"
)

// Class says what a SQLite result code means for a write. DESIGN.md beside this file has the
// measured reason for each.
type Class int

const (
	ClassNone      Class = iota // not an error of SQLite
	ClassTransient              // the whole transaction can be tried again
	ClassOnce                   // the same, but only once
	ClassFull                   // no room: refuse, stay up
	ClassFatal                  // it is no longer known what is on disk: stop acknowledging
	ClassOperator               // a person must fix the file or its rights
	ClassClient                 // a constraint or a size: the request is at fault
	ClassBug                    // the program is at fault
)

// classes maps extended result codes to classes. A code that is missing here is looked up by its
// primary code.
var classes = map[int]Class{
	5: ClassTransient, 261: ClassTransient, 773: ClassTransient, 517: ClassTransient, // BUSY and its kinds
	6: ClassTransient, 262: ClassTransient, 15: ClassTransient, // LOCKED, PROTOCOL
	7: ClassOnce, 3082: ClassOnce, // NOMEM, IOERR_NOMEM
	13:   ClassFull,
	1034: ClassFatal, 1290: ClassFatal, 778: ClassFatal, 266: ClassFatal, 522: ClassFatal, 1546: ClassFatal,
	8202: ClassFatal, 8458: ClassFatal, 8714: ClassFatal, 4618: ClassFatal, 4874: ClassFatal, 5130: ClassFatal,
	5386: ClassFatal, 2570: ClassFatal, 3850: ClassFatal, 1032: ClassFatal,
	10: ClassFatal, 11: ClassFatal, 779: ClassFatal, 26: ClassFatal,
	14: ClassOperator, 8: ClassOperator, 3: ClassOperator, 23: ClassOperator, 22: ClassOperator,
	19: ClassClient, 18: ClassClient,
	21: ClassBug, 1: ClassBug, 2: ClassBug,
}

// Code is the extended result code of err, 0 if it has none.
func Code(err error) int {
	var e *sqlite.Error
	if errors.As(err, &e) {
		return e.Code()
	}
	return 0
}

// Classify decides by the code's number, never by text.
func Classify(err error) Class { return classOf(Code(err)) }

func classOf(code int) Class {
	if code == 0 {
		return ClassNone
	}
	if c, ok := classes[code]; ok {
		return c
	}
	if c, ok := classes[code&0xff]; ok {
		return c
	}
	return ClassBug
}

// ReadError turns the error of a read into an error for the caller.
func ReadError(err error) error {
	var e *ckpt.Error
	switch {
	case err == nil:
		return nil
	case errors.As(err, &e):
		return err
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return ckpt.Wrap(ckpt.CodeBusy, err, "the read was stopped, because the client's deadline passed")
	}
	switch Classify(err) {
	case ClassTransient, ClassOnce:
		return ckpt.Wrap(ckpt.CodeBusy, err, "the database is locked just now: try again")
	case ClassFatal:
		return ckpt.Wrap(ckpt.CodeCorrupt, err, "the database cannot be read here (SQLite result %d): run ckptsidecar verify", Code(err))
	case ClassOperator:
		return ckpt.Wrap(ckpt.CodeInternal, err, "the database cannot be opened (SQLite result %d): run ckptsidecar doctor", Code(err))
	}
	return ckpt.Wrap(ckpt.CodeInternal, err, "reading failed inside the daemon: read the daemon's log")
}

// OperatorError stops a start until a person has fixed its cause.
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

// Unwrap returns the cause.
func (e *OperatorError) Unwrap() error { return e.Err }

// ErrLocked is the error of Open if another daemon has the database open.
var ErrLocked = errors.New("already running")

// FatalError is a fail-stop: the store has stopped acknowledging because it no longer knows what is
// on disk. A new process decides.
type FatalError struct{ Err error }

func (e *FatalError) Error() string {
	if isLockFault(e.Err) {
		return fmt.Sprintf("stopped acknowledging, because the writer is stuck: %v", e.Err)
	}
	return fmt.Sprintf("stopped acknowledging, because the data on disk is no longer certain: %v", e.Err)
}

// Unwrap returns the cause.
func (e *FatalError) Unwrap() error { return e.Err }

// ErrNoRoom is the error for a write that would use the space that deletes need.
var ErrNoRoom = &ckpt.Error{Code: ckpt.CodeStorageFull,
	Message: "the disk is full, and the rest is reserved for deletes: free space, or delete checkpoints; reads and deletes still work"}

// noRoom says that SQLite found no space for the files or for the log's index.
func noRoom(err error) bool { return Classify(err) == ClassFull || Code(err) == 4874 } // IOERR_SHMSIZE

// errSnapshot says that the log could not be truncated now.
var errSnapshot = errors.New("a reader holds a snapshot")

// errAgain says that the disk was full and has space now.
var errAgain = errors.New("the disk was full")

// lockFault is a fault of the locks, not of the data on disk: a new process has new locks, and the database need not be
// checked.
type lockFault struct{ error }

func (f lockFault) Unwrap() error { return f.error }

func isLockFault(err error) bool {
	var fault lockFault
	return errors.As(err, &fault)
}

// errAtCommit marks an error of COMMIT itself: the transaction may or may not be saved.
type errAtCommit struct{ error }

func (e errAtCommit) Unwrap() error { return e.error }

// commitError says what an error of COMMIT means. If SQLite found no space or no lock, nothing was
// saved. After a fault of the disk, the outcome is unknown.
func commitError(err error) error {
	switch Classify(err) {
	case ClassFatal, ClassOperator:
		return &FatalError{errAtCommit{err}}
	}
	return err
}
