package db_test

import (
	"fmt"
	"sync"
	"sync/atomic"
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

// BenchmarkSave measures durable saves of 2 KiB by this many clients at once, each a separate agent with the
// default policy.
func BenchmarkSave(b *testing.B) {
	for _, clients := range []int{1, 16, 64} {
		b.Run(fmt.Sprintf("clients=%d", clients), func(b *testing.B) {
			s, _ := open(b)
			state := make([]byte, 2048)
			var left atomic.Int64
			left.Store(int64(b.N))
			var wg sync.WaitGroup
			b.ResetTimer()
			for c := range clients {
				wg.Go(func() {
					agent := fmt.Sprintf("agent%d", c)
					for left.Add(-1) >= 0 {
						r := &ckpt.SaveRequest{ID: newID(b), Agent: agent, Kind: ckpt.KindRoutine, ContentType: "application/octet-stream", State: state}
						if _, err := s.Save(b.Context(), ann, r); err != nil {
							b.Error(err)
							return
						}
					}
				})
			}
			wg.Wait()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "saves/s")
		})
	}
}
