package server

import (
	"strings"
	"testing"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

// TestDiffOfALongKeyOverManyValues: the patch would be far larger than both
// states, so it is refused before it is made.
func TestDiffOfALongKeyOverManyValues(t *testing.T) {
	key := strings.Repeat("k", 200_000)
	from := []byte(`{"` + key + `":[` + strings.Repeat("1,", 100_000) + `1]}`)
	_, err := diff(from, []byte(`{"`+key+`":[]}`))
	if ckpt.CodeOf(err) != ckpt.CodeTooLarge {
		t.Errorf("answered %v", err)
	}
	if n := pathBytes([]byte(`{"ab":[1,2,3],"c":4}`)); n < 10 || n > 60 {
		t.Errorf("the paths of a small document count %d bytes", n)
	}
}
