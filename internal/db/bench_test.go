package db_test

import (
	"fmt"
	"testing"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

// BenchmarkSaveBesideNewRuns measures saves into a known run, every tenth next to a save into a new run.
func BenchmarkSaveBesideNewRuns(b *testing.B) {
	s, _ := open(b)
	state := make([]byte, 2048)
	put := func(n int, run string) {
		r := &ckpt.SaveRequest{ID: newID(b), Agent: "a", Run: run, Kind: ckpt.KindRoutine, ContentType: "application/octet-stream", State: state}
		if _, err := s.Save(b.Context(), ann, r); err != nil {
			b.Fatal(n, err)
		}
	}
	for n := range b.N {
		put(n, fmt.Sprint("known", n%8))
		if n%10 == 0 {
			put(n, fmt.Sprint("new", n))
		}
	}
}
