package sqlite

import (
	"context"
	"errors"
	"fmt"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"modernc.org/sqlite"
)

// Class is what a SQLite result code means for a write. The reasons, measured
// one by one, are in DESIGN.md beside this file.
type Class int

const (
	ClassNone      Class = iota // not an error of SQLite
	ClassTransient              // the whole transaction may be tried again
	ClassOnce                   // likewise, but once only
	ClassFull                   // no room: refuse, stay up
	ClassFatal                  // what is on disk is not known any more: stop acknowledging
	ClassOperator               // somebody must mend the file or its rights
	ClassClient                 // a constraint or a size: the request's fault
	ClassBug                    // ours
)

// classes is by extended result code; what is missing here is looked up by its
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

// Code is the extended result code of err, 0 where it has none.
func Code(err error) int {
	var e *sqlite.Error
	if errors.As(err, &e) {
		return e.Code()
	}
	return 0
}

// Classify decides by number, never by text.
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

// ReadError turns what a read met into the product's error.
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
		return fmt.Sprintf("stopped acknowledging, because the writer is stuck: %v", e.Err)
	}
	return fmt.Sprintf("stopped acknowledging, because the data on disk is no longer certain: %v", e.Err)
}

// Unwrap gives the cause.
func (e *FatalError) Unwrap() error { return e.Err }

// ErrNoRoom is the answer to what would use the room that deletes need.
var ErrNoRoom = &ckpt.Error{Code: ckpt.CodeStorageFull,
	Message: "the disk is full, and the rest is reserved for deletes: free space, or delete checkpoints; reads and deletes still work"}

// noRoom says that SQLite found no room, for the files or for the log's index.
func noRoom(err error) bool { return Classify(err) == ClassFull || Code(err) == 4874 } // IOERR_SHMSIZE

// errSnapshot says that the log could not be cut just now.
var errSnapshot = errors.New("a reader holds a snapshot")

// errAgain says that there is room now where there was none.
var errAgain = errors.New("the disk was full")

// lockFault is a fault of the locks and not of what is on disk: a fresh process has fresh locks, and nothing has to be
// checked.
type lockFault struct{ error }

func (f lockFault) Unwrap() error { return f.error }

func isLockFault(err error) bool {
	var fault lockFault
	return errors.As(err, &fault)
}

// errAtCommit marks an error of COMMIT itself: what it would have saved may be
// there or not.
type errAtCommit struct{ error }

func (e errAtCommit) Unwrap() error { return e.error }

// commitError says what an error of COMMIT means. Where SQLite found no room
// or a lock, nothing was saved; after a fault of the disk nobody knows.
func commitError(err error) error {
	switch Classify(err) {
	case ClassFatal, ClassOperator:
		return &FatalError{errAtCommit{err}}
	}
	return err
}
