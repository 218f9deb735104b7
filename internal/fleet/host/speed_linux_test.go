package host

import (
	"fmt"
	"os"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ckptsidecar/ckptsidecar/internal/fleet/pgtest"
)

// TestMeasureDurableFleet compares saves of durability fleet with bare INSERTs
// of the same size into the same engine, in turns. CKPTSIDECAR_MEASURE=1 runs
// it.
func TestMeasureDurableFleet(t *testing.T) {
	if os.Getenv("CKPTSIDECAR_MEASURE") == "" {
		t.Skip("it measures: set CKPTSIDECAR_MEASURE=1")
	}
	defer debug.SetGCPercent(debug.SetGCPercent(400)) // the daemon does this while it uses little memory: limits.garbage
	server, url := fleetEngine(t)
	server.Standby()
	server.Exec("fleet", `CREATE TABLE bare (id text PRIMARY KEY, body text)`)
	h := hostOf(t, url)
	conns := make([]*pgx.Conn, 16)
	for i := range conns {
		h.policy(fmt.Sprint("a", i), fleetPolicy)
		c, err := pgx.Connect(t.Context(), url)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close(t.Context())
		conns[i] = c
	}
	for round := range 4 {
		for _, clients := range []int{1, 16} {
			mark := costsOf(t, server)
			bare := persecond(clients, func(client, n int) {
				if _, err := conns[client].Exec(t.Context(), `INSERT INTO bare VALUES ($1, $2)`, newID(), fmt.Sprintf("%02000d", n)); err != nil {
					t.Error(err)
				}
			})
			bareCost := costsOf(t, server).since(mark, 2*bare)
			before := h.s.shipper.told().batches
			mark = costsOf(t, server)
			saves := persecond(clients, func(client, n int) {
				a := h.ask("PUT", fmt.Sprintf("/v1/agents/a%d/checkpoints/%s?kind=routine", client, newID()), fmt.Sprintf(`{"n":%d,"text":"%02000d"}`, n, n))
				a.want(t, "a save", "fleet", false)
			})
			batches := h.s.shipper.told().batches - before
			saveCost := costsOf(t, server).since(mark, 2*saves)
			t.Logf("processor time: %s for a save, %s for a bare INSERT", saveCost, bareCost)
			t.Logf("round %d, %2d clients: %5.0f saves a second in %d batches, %5.0f bare INSERTs, ratio %.2f", round, clients, saves, batches, bare, saves/bare)
		}
	}
}

// costs is the processor time of this process and of the engine.
type costs struct{ process, engine time.Duration }

func costsOf(t *testing.T, server *pgtest.Server) costs {
	t.Helper()
	return costs{processTime(t), server.ProcessorTime()}
}

// since returns the cost of each of these calls since an earlier moment.
func (c costs) since(earlier costs, calls float64) string {
	each := func(now, then time.Duration) float64 { return float64((now - then).Microseconds()) / 1000 / calls }
	return fmt.Sprintf("%.2f ms of this process and %.2f ms of the engine with its standby", each(c.process, earlier.process), each(c.engine, earlier.engine))
}

// persecond returns how many times per second this many clients can do
// something.
func persecond(clients int, do func(client, n int)) float64 {
	var done atomic.Int64
	var all sync.WaitGroup
	began := time.Now()
	for client := range clients {
		all.Go(func() {
			for n := 0; time.Since(began) < 2*time.Second; n++ {
				do(client, n)
				done.Add(1)
			}
		})
	}
	all.Wait()
	return float64(done.Load()) / time.Since(began).Seconds()
}
