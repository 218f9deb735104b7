package host

import (
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// TestMeasureDurableFleet compares saves of durability fleet with bare INSERTs of as
// many bytes into the same engine, in turns. CKPTSIDECAR_MEASURE=1 runs it.
func TestMeasureDurableFleet(t *testing.T) {
	if os.Getenv("CKPTSIDECAR_MEASURE") == "" {
		t.Skip("it measures: set CKPTSIDECAR_MEASURE=1")
	}
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
			bare := persecond(clients, func(client, n int) {
				if _, err := conns[client].Exec(t.Context(), `INSERT INTO bare VALUES ($1, $2)`, newID(), fmt.Sprintf("%02000d", n)); err != nil {
					t.Error(err)
				}
			})
			before := h.s.shipper.told().batches
			saves := persecond(clients, func(client, n int) {
				a := h.ask("PUT", fmt.Sprintf("/v1/agents/a%d/checkpoints/%s?kind=routine", client, newID()), fmt.Sprintf(`{"n":%d,"text":"%02000d"}`, n, n))
				a.want(t, "a save", "fleet", false)
			})
			batches := h.s.shipper.told().batches - before
			t.Logf("round %d, %2d clients: %5.0f saves a second in %d batches, %5.0f bare INSERTs, ratio %.2f", round, clients, saves, batches, bare, saves/bare)
		}
	}
}

// persecond counts how often so many clients can do something in a second.
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
