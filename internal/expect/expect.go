// Package expect says in one line what a test expects. Only tests import it. It
// may import the root package.
package expect

import (
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
