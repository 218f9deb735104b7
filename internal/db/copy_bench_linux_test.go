package db_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

var copies = flag.Int("copies", 0, "measure the export and the import of so many checkpoints")

// costs are the time, the processor time and the memory of f: the most that the process had above what it had before.
func costs(t testing.TB, f func()) string {
	t.Helper()
	debug.FreeOSMemory()
	resident := func() int64 {
		text, err := os.ReadFile("/proc/self/statm")
		must(t, err)
		pages, err := strconv.ParseInt(strings.Fields(string(text))[1], 10, 64)
		must(t, err)
		return pages * int64(os.Getpagesize())
	}
	cpu := func() time.Duration {
		var u syscall.Rusage
		must(t, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
		return time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	runtime.GC()
	before, most, begin, used := resident(), int64(0), time.Now(), cpu()
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			most = max(most, resident()-before)
			select {
			case <-stop:
				return
			case <-time.After(5 * time.Millisecond):
			}
		}
	}()
	f()
	took, spent := time.Since(begin), cpu()-used
	close(stop)
	<-done
	return fmt.Sprintf("%.1f s, %.1f s of the processor, %d MiB", took.Seconds(), spent.Seconds(), most>>20)
}

// TestMeasureCopy measures an export and an import. -copies says of how many checkpoints; see docs/BENCHMARKS.md.
func TestMeasureCopy(t *testing.T) {
	if *copies == 0 {
		t.Skip("-copies=100000 measures")
	}
	for name, state := range map[string]func(i int) string{
		"2 KiB each": func(i int) string {
			return fmt.Sprintf(`{"i":%d,"text":"%s"}`, i, strings.Repeat(fmt.Sprintf("%08d", i*7919%100000000), 250))
		},
		"a history that grows": func(i int) string {
			return `{"messages":["` + strings.Repeat(`a message of the history, which stays","`, 100+i%2000) + fmt.Sprint(i) + `"]}`
		},
	} {
		n := *copies
		if name != "2 KiB each" {
			n /= 10
		}
		folder := t.TempDir()
		s := openWith(t, options(filepath.Join(folder, "ckpt.db"), newClock()))
		p := ckpt.DefaultPolicy()
		p.RoutineKeep = 0
		_, err := s.SetPolicy(t.Context(), ann, "a", p)
		must(t, err)
		var group sync.WaitGroup
		for w := range 32 {
			group.Go(func() {
				for i := w; i < n; i += 32 {
					_, err := s.Save(t.Context(), ann, &ckpt.SaveRequest{Agent: "a", Run: fmt.Sprintf("r%d", w), Kind: ckpt.KindRoutine, State: []byte(state(i))})
					must(t, err)
				}
			})
		}
		group.Wait()
		file := filepath.Join(folder, "export")
		out, err := os.Create(file)
		must(t, err)
		exports := costs(t, func() { must(t, s.ExportAgents(t.Context(), ann, ckpt.ExportRequest{}, out)) })
		must(t, out.Close())
		info, err := os.Stat(file)
		must(t, err)
		to := openWith(t, options(filepath.Join(t.TempDir(), "ckpt.db"), newClock()))
		in, err := os.Open(file)
		must(t, err)
		imports := costs(t, func() {
			report, err := to.Import(t.Context(), ann, ckpt.ImportRequest{}, in)
			must(t, err)
			if report.Imported != n {
				t.Errorf("%d of %d checkpoints were imported", report.Imported, n)
			}
		})
		must(t, in.Close())
		must(t, to.Close())
		t.Logf("%d checkpoints, %s: a file of %d MiB; export %s; import %s", n, name, info.Size()>>20, exports, imports)
		must(t, s.Close())
	}
}
