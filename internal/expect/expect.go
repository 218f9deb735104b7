// Package expect says in one line what a test expects. Only tests import it. It
// may import the root package.
package expect

import (
	"database/sql"
	"testing"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

// OK ends the test where there is an error.
func OK(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// soon is more than the busiest machine needs for anything that a test waits for.
const soon = 5 * time.Minute

// Soon waits until something has happened, and ends the test where that does not happen.
func Soon(t testing.TB, what string, happened func() bool) {
	t.Helper()
	end := time.Now().Add(soon)
	for pause := 100 * time.Microsecond; !happened(); pause = min(2*pause, 10*time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not in %v: %s", soon, what)
		}
		time.Sleep(pause)
	}
}

// OneThread leaves a long test without concurrency out of the short run, and so out of CI under the
// race detector.
func OneThread(t testing.TB) {
	t.Helper()
	if testing.Short() {
		t.Skip("-short: it is long, and nothing in it happens at the same time")
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
