package db_test

import (
	"syscall"
	"testing"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

// BenchmarkAppend measures the cost of one event, including the processor time
// of the whole process.
func BenchmarkAppend(b *testing.B) {
	s, _ := open(b)
	events := []ckpt.NewEvent{{Type: "tool", Payload: ckpt.JSON(`{"name":"search","args":{"q":"the weather in Zurich"}}`)}}
	cpu := func() int64 {
		var use syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &use); err != nil {
			b.Fatal(err)
		}
		return use.Utime.Nano() + use.Stime.Nano()
	}
	began := cpu()
	for b.Loop() {
		if _, _, err := s.Append(b.Context(), ann, mainRun, events, ""); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(cpu()-began)/float64(b.N), "cpu-ns/op")
}
