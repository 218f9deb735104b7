package db

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

// TestClasses holds every code of the table of result codes to its class.
func TestClasses(t *testing.T) {
	table := map[class][]int{
		classNone:      {0},
		classTransient: {5, 261, 773, 517, 6, 262, 15},
		classOnce:      {7, 3082},
		classFull:      {13},
		classFatal: {1034, 1290, 778, 266, 522, 1546, 8202, 8458, 8714, 4618, 4874, 5130, 5386, 2570, 3850, 1032,
			11, 779, 26},
		classOperator: {14, 8, 3, 23, 22},
		classClient:   {19, 18},
		classBug:      {21, 1, 2},
	}
	for want, codes := range table {
		for _, code := range codes {
			if got := classOf(code); got != want {
				t.Errorf("result code %d is of class %d, want %d", code, got, want)
			}
		}
	}
}

// TestExtendedCodesFallBack looks up by its primary code what has no class of its own.
func TestExtendedCodesFallBack(t *testing.T) {
	for code, want := range map[int]class{
		2067: classClient, 1299: classClient, 787: classClient, // kinds of CONSTRAINT
		264: classOperator, 520: classOperator, 776: classOperator, 1288: classOperator, // kinds of READONLY, but for 1032
		270: classOperator, 1038: classOperator, // kinds of CANTOPEN
		523: classFatal, 267: classFatal, // kinds of CORRUPT
		5<<8 | 10: classFatal, 33<<8 | 10: classFatal, // kinds of IOERR
		99: classBug, 100: classBug, 101: classBug,
	} {
		if got := classOf(code); got != want {
			t.Errorf("result code %d is of class %d, want %d", code, got, want)
		}
	}
}

// TestRealCodes takes codes from SQLite itself, wrapped as they come.
func TestRealCodes(t *testing.T) {
	db, err := pool(t.TempDir()+"/x.db", "rwc", 1, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	db.MustExec(`CREATE TABLE t (x INTEGER PRIMARY KEY CHECK (x > 0)) STRICT`)
	for _, c := range []struct {
		statement string
		want      class
	}{
		{`INSERT INTO t VALUES (-1)`, classClient},
		{`INSERT INTO t VALUES (1), (1)`, classClient},
		{`nonsense`, classBug},
		{`SELECT zeroblob(2000000000)`, classClient},
		{`PRAGMA query_only = 1; INSERT INTO t VALUES (17)`, classOperator},
	} {
		_, err := db.Exec(c.statement)
		if got := classify(fmt.Errorf("wrapped: %w", err)); got != c.want {
			t.Errorf("%s: %v is of class %d, want %d", c.statement, err, got, c.want)
		}
	}
	if classify(errors.New("database is locked (5)")) != classNone {
		t.Error("an error was judged by its text")
	}
}

// TestReadErrors gives each class of a failed read its own answer.
func TestReadErrors(t *testing.T) {
	if readError(nil) != nil {
		t.Error("nil became an error")
	}
	for err, want := range map[error]ckpt.Code{
		context.Canceled:                             ckpt.CodeBusy,
		context.DeadlineExceeded:                     ckpt.CodeBusy,
		errors.New("x"):                              ckpt.CodeInternal,
		ckpt.Errorf(ckpt.CodeNotFound, "it is gone"): ckpt.CodeNotFound,
	} {
		if got := ckpt.CodeOf(readError(err)); got != want {
			t.Errorf("%v became %s, want %s", err, got, want)
		}
	}
}

// TestErrorsSpeak checks that causes are found again and named.
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
