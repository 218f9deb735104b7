package db_test

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

// BenchmarkSave is durable saves of 2 KiB by so many clients at once, each an
// agent of its own with the default policy.
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
