package db_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"testing"

	"github.com/jmoiron/sqlx"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db"
	"github.com/ckptsidecar/ckptsidecar/internal/db/audit"
	"github.com/ckptsidecar/ckptsidecar/internal/db/sqlite"
)

// BenchmarkVerify verifies a database of 20,000 checkpoints of 2 KiB (CKPTSIDECAR_BENCH_CHECKPOINTS for another number) in 200 runs, and beside
// it makes SQLite's own check of the file.
func BenchmarkVerify(b *testing.B) {
	s, _ := open(b)
	path, checkpoints := pathOf(s), 20_000
	if n, err := strconv.Atoi(os.Getenv("CKPTSIDECAR_BENCH_CHECKPOINTS")); err == nil {
		checkpoints = n
	}
	manyCheckpoints(b, s, checkpoints)
	must(b, s.Close())
	b.Run("sqlite", func(b *testing.B) {
		db, done, err := sqlite.OpenBeside(path, 1)
		must(b, err)
		defer done()
		timedCPU(b, func() { integrity(b, db) })
	})
	b.Run("verify", func(b *testing.B) {
		timedCPU(b, func() {
			report, err := audit.Verify(b.Context(), path, nil)
			must(b, err)
			if len(report.Problems) > 0 {
				b.Fatal(report.Problems[0])
			}
		})
	})
}

// BenchmarkStatus asks for the status and the agents of a database of many checkpoints: as its only user, and as one of two.
func BenchmarkStatus(b *testing.B) {
	for _, n := range []int{2_000, 20_000} {
		s, _ := open(b)
		manyCheckpoints(b, s, n)
		for _, users := range []int{1, 2} {
			if users == 2 {
				save(b, s, bob, "b", ckpt.KindRoutine, `1`)
			}
			b.Run(fmt.Sprintf("status/checkpoints=%d/users=%d", n, users), func(b *testing.B) {
				timedCPU(b, func() {
					_, err := s.Status(b.Context(), ann)
					must(b, err)
				})
			})
			b.Run(fmt.Sprintf("agents/checkpoints=%d/users=%d", n, users), func(b *testing.B) {
				timedCPU(b, func() {
					_, err := s.Agents(b.Context(), ann, ckpt.AgentFilter{})
					must(b, err)
				})
			})
		}
	}
}

// manyCheckpoints saves recovery checkpoints of 2 KiB into 200 runs of 20 agents.
func manyCheckpoints(b *testing.B, s *db.Store, checkpoints int) {
	var wg sync.WaitGroup
	for c := range 16 {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(1, uint64(c)))
			for i := c; i < checkpoints; i += 16 {
				state := fmt.Appendf(nil, `{"n":%d,"text":"%0*x"}`, i, 2000, r.Uint64())
				_, err := s.Save(b.Context(), ann, &ckpt.SaveRequest{ID: newID(b), Agent: fmt.Sprint("a", i%20), Run: fmt.Sprint("r", i%200),
					Kind: ckpt.KindRecovery, ContentType: ckpt.ContentTypeJSON, State: state})
				if err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
}

func integrity(b *testing.B, db *sqlx.DB) {
	var said string
	must(b, db.GetContext(b.Context(), &said, `PRAGMA integrity_check`))
	if said != "ok" {
		b.Fatal(said)
	}
}

// timedCPU reports the processor time of each call.
func timedCPU(b *testing.B, do func()) {
	before := processorTime(b)
	for b.Loop() {
		do()
	}
	b.ReportMetric((processorTime(b)-before).Seconds()/float64(b.N), "cpu-s/op")
}
