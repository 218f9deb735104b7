package db_test

import (
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"testing"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

// BenchmarkSave measures durable saves of 2 KiB by this many clients at once, each a separate agent with the
// default policy: the processor time of a save, and the pages of the write-ahead log that it fills.
func BenchmarkSave(b *testing.B) {
	for _, clients := range []int{1, 16, 64} {
		b.Run(fmt.Sprintf("clients=%d", clients), func(b *testing.B) {
			s, _ := open(b)
			state := make([]byte, 2048)
			var left atomic.Int64
			left.Store(int64(b.N))
			var wg sync.WaitGroup
			before := processorTime(b)
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
			b.ReportMetric(float64((processorTime(b)-before).Microseconds())/float64(b.N), "cpu-µs/op")
			log, err := os.Stat(pathOf(s) + "-wal")
			must(b, err)
			b.ReportMetric(float64(log.Size())/4120/float64(b.N), "pages/op")
		})
	}
}
