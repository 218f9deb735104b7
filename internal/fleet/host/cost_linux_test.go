package host

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

// TestMeasureFleet is T10: it measures in turns what shipping costs local saves, with the fleet off, on, on with a
// key that seals, and on with a dead engine. CKPTSIDECAR_MEASURE=1 runs it.
func TestMeasureFleet(t *testing.T) {
	if os.Getenv("CKPTSIDECAR_MEASURE") == "" {
		t.Skip("it measures: set CKPTSIDECAR_MEASURE=1")
	}
	_, url := fleetEngine(t)
	for round := range 4 {
		for _, how := range []string{"off", "on", "sealed", "dead"} {
			rate, cpu := savesWith(t, how, url)
			t.Logf("round %d, fleet %-6s: %6.0f saves a second, %.3f ms of this process for each", round, how, rate, cpu)
		}
	}
}

// savesWith saves 2 KiB with 16 clients for two seconds.
func savesWith(t *testing.T, how, url string) (rate, cpu float64) {
	t.Helper()
	s := openFleetStore(t, filepath.Join(t.TempDir(), "ckpt.db"))
	defer s.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	var all sync.WaitGroup
	if how != "off" {
		if how == "dead" {
			url = "postgres://postgres@127.0.0.1:1/fleet"
		}
		ship := shipperOf(s, url, "measured")
		if how == "sealed" {
			ship.keys = keysIn(keyFile(t))
		}
		ship.pace.Floor, ship.pace.Most, ship.bytes = 100*time.Millisecond, pauseMost, 8<<20
		all.Go(func() { _ = ship.Run(ctx) })
	}
	var saved atomic.Int64
	before := processTime(t)
	began := time.Now()
	for client := range 16 {
		all.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				state := fmt.Appendf(nil, `{"client":%d,"n":%d,"text":"%02000d"}`, client, i, i)
				r := &ckpt.SaveRequest{Agent: fmt.Sprint("a", client), Kind: ckpt.KindRoutine, ContentType: ckpt.ContentTypeJSON, State: state}
				if _, err := s.Save(context.Background(), fleetUser, r); err != nil {
					t.Error(err)
					return
				}
				saved.Add(1)
			}
		})
	}
	all.Wait()
	took := time.Since(began).Seconds()
	n := float64(saved.Load())
	return n / took, (processTime(t) - before).Seconds() * 1000 / n
}

func processTime(t *testing.T) time.Duration {
	t.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
