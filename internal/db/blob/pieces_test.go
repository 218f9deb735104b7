package blob

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/ckptsidecar/ckptsidecar/internal/delta"
)

// TestReadPieces: lists in the form that we write are read by the fast parser,
// other lists as JSON, and a text that is not a list by neither.
func TestReadPieces(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 1))
	for n := range 200 {
		list := make([]delta.Piece, n%70)
		for i := range list {
			list[i] = delta.Piece{Segment: r.Int64N(1e12), Offset: r.Int64N(1e6), Length: r.Int64N(10)}
		}
		text := WritePieces(list)
		got, ours := readOwn(text)
		if !ours || !slices.Equal(got, list) {
			t.Fatalf("%s is read as %v", text, got)
		}
	}
	for text, want := range map[string]bool{
		"[ [1,2,3] ]": true, "[[1,2,3],[4,5,6]]": true, "[[1,2,3] ,[4,5,6]]": true, "[[-1,2,3]]": true, "[[1e2,2,3]]": false,
		"": false, "[": false, "[[": false, "[[1,2,3]": false, "[[1,2,3]]]": false, "[[1,2]]": false, "[[1,2,3,4]]": false, "[[1,-2,3]]": false,
		"[[1,2,3],]": false, "[[1,2,3]x]": false, "[[1,2,99999999999999999999]]": false, "[[,2,3]]": false, "null": true, "]": false,
	} {
		if got, err := ReadPieces(text); (err == nil) != want {
			t.Errorf("%q is read as %v, %v", text, got, err)
		}
	}
}
