// Package expect says in one line what a test expects. Only tests import it. It
// may import the root package.
package expect

import (
	"database/sql"
	"testing"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

// OK ends the test where there is an error.
func OK(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Equal fails the test where a value is another than the expected one.
func Equal[T comparable](t testing.TB, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s is %v, want %v", what, got, want)
	}
}

// Code fails the test where an error has another code than the expected one.
func Code(t testing.TB, err error, code ckpt.Code) {
	t.Helper()
	if ckpt.CodeOf(err) != code {
		t.Errorf("the error is %v, want code %s", err, code)
	}
}

// Plan is how SQLite answers a statement: the steps of EXPLAIN QUERY PLAN.
func Plan(t testing.TB, q interface {
	Query(text string, args ...any) (*sql.Rows, error)
}, text string, args ...any) []string {
	t.Helper()
	rows, err := q.Query("EXPLAIN QUERY PLAN "+text, args...)
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	defer rows.Close()
	var plan []string
	for rows.Next() {
		var id, parent, unused int
		var step string
		OK(t, rows.Scan(&id, &parent, &unused, &step))
		plan = append(plan, step)
	}
	OK(t, rows.Err())
	return plan
}
