package sqlite

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

// TestClasses checks the class of every result code in the table.
func TestClasses(t *testing.T) {
	table := map[Class][]int{
		ClassNone:      {0},
		ClassTransient: {5, 261, 773, 517, 6, 262, 15},
		ClassOnce:      {7, 3082},
		ClassFull:      {13},
		ClassFatal: {1034, 1290, 778, 266, 522, 1546, 8202, 8458, 8714, 4618, 4874, 5130, 5386, 2570, 3850, 1032,
			11, 779, 26},
		ClassOperator: {14, 8, 3, 23, 22},
		ClassClient:   {19, 18},
		ClassBug:      {21, 1, 2},
	}
	for want, codes := range table {
		for _, code := range codes {
			if got := classOf(code); got != want {
				t.Errorf("result code %d is of class %d, want %d", code, got, want)
			}
		}
	}
}

// TestExtendedCodesFallBack: an extended code without its own class has the
// class of its primary code.
func TestExtendedCodesFallBack(t *testing.T) {
	for code, want := range map[int]Class{
		2067: ClassClient, 1299: ClassClient, 787: ClassClient, // kinds of CONSTRAINT
		264: ClassOperator, 520: ClassOperator, 776: ClassOperator, 1288: ClassOperator, // kinds of READONLY, except 1032
		270: ClassOperator, 1038: ClassOperator, // kinds of CANTOPEN
		523: ClassFatal, 267: ClassFatal, // kinds of CORRUPT
		5<<8 | 10: ClassFatal, 33<<8 | 10: ClassFatal, // kinds of IOERR
		99: ClassBug, 100: ClassBug, 101: ClassBug,
	} {
		if got := classOf(code); got != want {
			t.Errorf("result code %d is of class %d, want %d", code, got, want)
		}
	}
}

// TestRealCodes uses codes from SQLite itself, in errors as the driver wraps
// them.
func TestRealCodes(t *testing.T) {
	db, err := pool(t.TempDir()+"/x.db", "rwc", 1, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	db.MustExec(`CREATE TABLE t (x INTEGER PRIMARY KEY CHECK (x > 0)) STRICT`)
	for _, c := range []struct {
		statement string
		want      Class
	}{
		{`INSERT INTO t VALUES (-1)`, ClassClient},
		{`INSERT INTO t VALUES (1), (1)`, ClassClient},
		{`nonsense`, ClassBug},
		{`SELECT zeroblob(2000000000)`, ClassClient},
		{`PRAGMA query_only = 1; INSERT INTO t VALUES (17)`, ClassOperator},
	} {
		_, err := db.Exec(c.statement)
		if got := Classify(fmt.Errorf("wrapped: %w", err)); got != c.want {
			t.Errorf("%s: %v is of class %d, want %d", c.statement, err, got, c.want)
		}
	}
	if Classify(errors.New("database is locked (5)")) != ClassNone {
		t.Error("an error was judged by its text")
	}
}

// TestReadErrors: each class of a failed read gets its own answer.
func TestReadErrors(t *testing.T) {
	if ReadError(nil) != nil {
		t.Error("nil became an error")
	}
	for err, want := range map[error]ckpt.Code{
		context.Canceled:                             ckpt.CodeBusy,
		context.DeadlineExceeded:                     ckpt.CodeBusy,
		errors.New("x"):                              ckpt.CodeInternal,
		ckpt.Errorf(ckpt.CodeNotFound, "it is gone"): ckpt.CodeNotFound,
	} {
		if got := ckpt.CodeOf(ReadError(err)); got != want {
			t.Errorf("%v became %s, want %s", err, got, want)
		}
	}
}

// TestErrorsSpeak checks that causes can be unwrapped and are named.
func TestErrorsSpeak(t *testing.T) {
	cause := errors.New("the cause")
	for _, err := range []error{
		&OperatorError{"mend it", cause}, &FatalError{cause}, &FatalError{errAtCommit{cause}}, errRefusedLate{cause}, stopped(cause),
	} {
		if !errors.Is(err, cause) || !strings.Contains(err.Error(), "the cause") {
			t.Errorf("%T loses its cause: %v", err, err)
		}
	}
}
