package host

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"strings"
	"testing"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/expect"
	"github.com/ckptsidecar/ckptsidecar/internal/fleet"
	"github.com/ckptsidecar/ckptsidecar/internal/fleet/pgtest"
)

// saves saves n times on this host.
func (h *seenHost) saves(agent string, n int, state string) {
	h.t.Helper()
	for range n {
		if _, err := h.store.Save(h.t.Context(), fleetUser, &ckpt.SaveRequest{Agent: agent, Kind: ckpt.KindRecovery, ContentType: ckpt.ContentTypeJSON, State: []byte(state)}); err != nil {
			h.t.Fatal(err)
		}
	}
}

// until waits until the status of the shipping is as expected.
func (h *seenHost) until(what string, is func(*fleet.Status) bool) {
	h.t.Helper()
	admin := ckpt.Caller{Owner: "uid:0", Admin: true}
	expect.Soon(h.t, what, func() bool { s := h.status(admin); return is(&s) })
}

// TestSlowEngine saves while the engine does not respond, while it is slow, and
// while it has no room. Saves continue, the status reports the state, and in
// the end the engine has everything.
func TestSlowEngine(t *testing.T) {
	t.Parallel()
	engine := pgtest.Start(t)
	engine.Database("fleet")
	if _, _, err := Migrate(t.Context(), engine.URL("fleet")); err != nil {
		t.Fatal(err)
	}
	relay := engine.Relay()
	h := newSeenHost(t, relay.URL("fleet"), "here")
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- h.ship.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	shipped := func(s *fleet.Status) bool { return s.State == fleet.StateShipping && s.Unshipped == 0 }
	h.saves("a", 1, `{}`)
	h.until("the first save is shipped", shipped)

	letGo := relay.Hold(t)
	h.saves("a", 50, `{}`)
	h.until("status tells what waits", func(s *fleet.Status) bool { return s.Unshipped >= 50 && s.Lag > 0 })
	letGo()
	h.until("what waited is shipped", shipped)

	relay.Slow(50 * time.Millisecond)
	h.saves("a", 50, `{}`)
	h.until("a slow engine gets all", shipped)
	relay.Slow(0)

	engine.Small(16)
	for i := range 12 { // 24 MiB, in runs that each need their own batch
		noise := make([]byte, 2<<20) // this does not compress
		_, _ = rand.Read(noise)
		h.saves(fmt.Sprint("large-", i), 1, fmt.Sprintf(`{"text":%q}`, base64.StdEncoding.EncodeToString(noise)))
	}
	h.until("status tells that the engine is full", func(s *fleet.Status) bool {
		return s.State == fleet.StateFull && s.Unshipped > 0 && strings.Contains(s.Error, "full")
	})
	h.saves("a", 5, `{}`)
	engine.Small(0)
	h.until("an engine that has room again gets all", shipped)
	if got := engine.Rows("fleet", `SELECT count(*) FROM fleet_checkpoints`); got[0] != "118" {
		t.Errorf("the engine has %s checkpoints", got)
	}
}
