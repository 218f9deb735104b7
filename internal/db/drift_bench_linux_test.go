package db_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"syscall"
	"testing"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db"
	"github.com/ckptsidecar/ckptsidecar/internal/drift"
)

// These benchmarks measure what watching costs if nothing is found: the same
// saves and steps with the real detectors and without any.
// go test ./internal/db -run '^$' -bench Watching -count 6

func benchStore(b *testing.B, watched bool) *db.Store {
	o := options(b.TempDir()+"/ckpt.db", newClock())
	if watched {
		o.Drift = drift.New()
	}
	return openWith(b, o)
}

func watching(b *testing.B, run func(b *testing.B, s *db.Store)) {
	for _, watched := range []bool{false, true} {
		b.Run(map[bool]string{false: "off", true: "on"}[watched], func(b *testing.B) {
			s, before := benchStore(b, watched), processorTime(b)
			run(b, s)
			b.ReportMetric(float64((processorTime(b)-before).Nanoseconds())/float64(b.N), "cpu-ns/op")
		})
	}
}

// processorTime returns the processor time of this process. It says more than
// the clock if the machine is busy.
func processorTime(b *testing.B) time.Duration {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		b.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

// growing is a transcript that grows by one message per call.
func growing(size int) func(i int) []byte {
	r := rand.New(rand.NewPCG(1, 2))
	var messages strings.Builder
	for messages.Len() < size {
		fmt.Fprintf(&messages, `{"role":"assistant","content":"%x %x %x","tokens":%d},`, r.Uint64(), r.Uint64(), r.Uint64(), r.IntN(1000))
	}
	return func(i int) []byte {
		return fmt.Appendf(nil, `{"step":%d,"plan":["a","b"],"messages":[%s{"role":"user","content":"%d"}]}`, i, messages.String(), i)
	}
}

func BenchmarkWatchingSaves(b *testing.B) {
	for _, size := range []int{200, 4 << 10, 100 << 10, 1 << 20} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			watching(b, func(b *testing.B, s *db.Store) {
				state := growing(size)
				i := 0
				for b.Loop() {
					if _, err := s.Save(b.Context(), ann, &ckpt.SaveRequest{Agent: "a", Kind: ckpt.KindRoutine, ContentType: ckpt.ContentTypeJSON, State: state(i)}); err != nil {
						b.Fatal(err)
					}
					i++
				}
			})
		})
	}
}

func BenchmarkWatchingSteps(b *testing.B) {
	watching(b, func(b *testing.B, s *db.Store) {
		i := 0
		for b.Loop() {
			r := ckpt.StepRequest{Key: fmt.Sprint("k", i), Name: []string{"read", "write", "search"}[i%3], Args: ckpt.JSON(fmt.Sprintf(`{"path":"file%d.go","line":%d}`, i, i)),
				Status: ckpt.StepSucceeded, Result: ckpt.JSON(fmt.Sprintf(`{"text":"%s","n":%d}`, strings.Repeat("line of text ", 40), i))}
			if _, _, err := s.BeginStep(b.Context(), ann, mainRun, r); err != nil {
				b.Fatal(err)
			}
			i++
		}
	})
}

func BenchmarkWatchingBeats(b *testing.B) {
	watching(b, func(b *testing.B, s *db.Store) {
		if _, _, err := s.StartRun(b.Context(), ann, ckpt.RunRequest{Agent: "a"}); err != nil {
			b.Fatal(err)
		}
		for b.Loop() {
			if _, err := s.Beat(b.Context(), ann, mainRun, ckpt.Heartbeat{}); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkColdSaves measures saves into runs that are not watched, whose past
// is read again, and first saves into new runs. "warm" is the same saves into
// watched runs.
func BenchmarkColdSaves(b *testing.B) {
	const runs = 64
	state := growing(2048)
	save := func(b *testing.B, s *db.Store, agent string, run, i int) {
		r := &ckpt.SaveRequest{Agent: agent, Run: fmt.Sprint("r", run), Kind: ckpt.KindRoutine, ContentType: ckpt.ContentTypeJSON, State: state(i)}
		if _, err := s.Save(b.Context(), ann, r); err != nil {
			b.Fatal(err)
		}
	}
	for name, watches := range map[string]int{"cold": 1, "warm": runs} {
		b.Run(name, func(b *testing.B) {
			o := options(b.TempDir()+"/ckpt.db", newClock())
			o.Drift, o.Watches = drift.New(), watches
			s := openWith(b, o)
			i := 0
			for ; i < 4*runs; i++ {
				save(b, s, "a", i%runs, i)
			}
			before := processorTime(b)
			for b.Loop() {
				save(b, s, "a", i%runs, i)
				i++
			}
			b.ReportMetric(float64((processorTime(b)-before).Nanoseconds())/float64(b.N), "cpu-ns/op")
		})
	}
	b.Run("new", func(b *testing.B) {
		s, before := benchStore(b, true), processorTime(b)
		i := 0
		for b.Loop() {
			save(b, s, "a", i, i)
			i++
		}
		b.ReportMetric(float64((processorTime(b)-before).Nanoseconds())/float64(b.N), "cpu-ns/op")
	})
}
