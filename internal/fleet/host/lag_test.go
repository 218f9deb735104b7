package host

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

var (
	lagFor = flag.Duration("fleet.lag", 5*time.Second, "how long TestMeasureLag saves")
	lagBar = flag.Duration("fleet.lag-bar", 0, "the lag that TestMeasureLag refuses in 99 of 100 looks; 0 for any")
)

// TestMeasureLag saves 2 KiB a thousand times a second into 32 runs, or as often as this machine can, and measures
// how long the oldest row that is not shipped yet waits. CKPTSIDECAR_MEASURE=1 runs it.
func TestMeasureLag(t *testing.T) {
	if os.Getenv("CKPTSIDECAR_MEASURE") == "" {
		t.Skip("it measures: set CKPTSIDECAR_MEASURE=1")
	}
	_, url := fleetEngine(t)
	h := hostOf(t, url, func(s *shipper) { s.pace.Floor, s.bytes = 100*time.Millisecond, 8<<20 })
	const clients, rate = 32, 1000
	var saved atomic.Int64
	var all sync.WaitGroup
	began := time.Now()
	for client := range clients {
		all.Go(func() {
			every := time.NewTicker(clients * time.Second / rate)
			defer every.Stop()
			for n := 0; time.Since(began) < *lagFor; n++ {
				<-every.C
				_, err := h.store.Save(t.Context(), fleetUser, &ckpt.SaveRequest{Agent: "a", Run: fmt.Sprint("r", client), Kind: ckpt.KindRoutine,
					ContentType: ckpt.ContentTypeJSON, State: fmt.Appendf(nil, `{"client":%d,"n":%d,"text":"%02000d"}`, client, n, n)})
				if err != nil {
					t.Error(err)
					return
				}
				saved.Add(1)
			}
		})
	}
	lags := h.lags(began)
	all.Wait()
	reached := float64(saved.Load()) / time.Since(began).Seconds()
	slices.Sort(lags)
	at := func(share float64) time.Duration {
		return lags[int(share*float64(len(lags)-1))].Round(time.Millisecond)
	}
	t.Logf("%.0f saves of 2 KiB a second, shipped in %d batches: lag p50 %v, p99 %v, most %v, in %d looks", reached, h.s.shipper.told().batches,
		at(0.5), at(0.99), at(1), len(lags))
	if *lagBar > 0 && at(0.99) > *lagBar {
		t.Errorf("the lag is %v, want at most %v", at(0.99), *lagBar)
	}
}

// lags measures every 20 ms how long the oldest row waits.
func (h *fleetHost) lags(began time.Time) (list []time.Duration) {
	h.t.Helper()
	look := time.NewTicker(20 * time.Millisecond)
	defer look.Stop()
	for time.Since(began) < *lagFor {
		<-look.C
		_, lag, err := h.s.shipper.behind(h.t.Context(), h.s.shipper.told().mark.N)
		if err != nil {
			h.t.Fatal(err)
		}
		list = append(list, time.Duration(lag*float64(time.Second)))
	}
	return list
}
