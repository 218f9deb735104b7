package host

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/fleet"
	"github.com/ckptsidecar/ckptsidecar/internal/fleet/lease"
	"github.com/ckptsidecar/ckptsidecar/internal/fleet/pg"
	"github.com/ckptsidecar/ckptsidecar/internal/fleet/pgtest"
)

// ticks is a clock that the test moves.
type ticks struct {
	mu  sync.Mutex
	now time.Duration
}

func (c *ticks) read() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *ticks) pass(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now += d
}

// leaseOver ends the lease of a host in the engine, as time does.
func leaseOver(server *pgtest.Server, db string) {
	server.Exec("fleet", `UPDATE fleet_hosts SET lease_until = clock_timestamp() - interval '1 hour' WHERE db = '`+db+`'`)
}

// TestLeaseIsRenewed: a host holds its lease while the engine confirms it, and
// gives it up on its own if the engine does not. A renewal returns which runs
// other hosts own.
func TestLeaseIsRenewed(t *testing.T) {
	t.Parallel()
	server, url := fleetEngine(t)
	clock := &ticks{now: time.Hour}
	one := openFleetStore(t, filepath.Join(t.TempDir(), "one.db"))
	work(t, one)
	s := shipperOf(one, url, "one")
	s.keepLease(lease.New(clock.read, 15*time.Second), 5*time.Second)
	k := s.keeper
	defer s.hangUp()
	defer k.hangUp()
	if k.lease.Held() {
		t.Error("a host that has not asked holds its lease")
	}
	if err := k.renew(t.Context()); err != nil || !k.lease.Held() {
		t.Fatalf("renewed: %v, with %v left", err, k.lease.Left())
	}
	if got := server.Rows("fleet", `SELECT lease_until > clock_timestamp() + interval '10 seconds' FROM fleet_hosts`); got[0] != "true" {
		t.Errorf("the engine says %q of the lease", got)
	}
	clock.pass(12 * time.Second)
	if k.lease.Held() {
		t.Error("the lease is held after four fifths of its time")
	}
	if err := k.renew(t.Context()); err != nil || !k.lease.Held() {
		t.Fatalf("renewed again: %v", err)
	}

	t.Run("an answer that is late gives less", func(t *testing.T) {
		heed := k.heed
		defer func() { k.heed = heed }()
		k.heed = func(ctx context.Context, e *pg.Engine, ask func(context.Context) ([]fleet.Taken, error)) error {
			defer clock.pass(5 * time.Second)
			return heed(ctx, e, ask)
		}
		clock.pass(11 * time.Second)
		if err := k.renew(t.Context()); err != nil || k.lease.Left() != 7*time.Second {
			t.Errorf("after an answer of 5 s, %v are left: %v", k.lease.Left(), err)
		}
	})
	t.Run("a claim is heard of with the renewal", func(t *testing.T) {
		if err := s.once(t.Context()); err != nil {
			t.Fatal(err)
		}
		c := claimantOf(openFleetStore(t, filepath.Join(t.TempDir(), "two.db")), url, "two")
		if _, err := c.Claim(t.Context(), fleetAdmin, fleet.ClaimRequest{Agent: "a", Run: "main", Owner: "uid:1001", Force: true}); err != nil {
			t.Fatal(err)
		}
		if err := k.renew(t.Context()); err != nil {
			t.Fatal(err)
		}
		wantRefused(t, saveOne(one, t, "main", `{}`), ckpt.CodeFenced, "has claimed run main")
	})
	t.Run("a second daemon with the same database takes it", func(t *testing.T) {
		other := shipperOf(one, url, "clone")
		other.keepLease(lease.New(clock.read, 15*time.Second), 0)
		defer other.keeper.hangUp()
		if err := other.keeper.renew(t.Context()); err != nil {
			t.Fatal(err)
		}
		for range 2 { // also after reconnecting
			if err := k.renew(t.Context()); !errors.Is(err, pg.ErrLease) || k.lease.Held() {
				t.Errorf("the first daemon is answered %v, and holds the lease: %v", err, k.lease.Held())
			}
			k.hangUp()
		}
		leaseOver(server, one.ID)
		if err := k.renew(t.Context()); err != nil || !k.lease.Held() {
			t.Errorf("after the other's lease: %v", err)
		}
	})
	t.Run("a host whose database is not the engine's holds none", func(t *testing.T) {
		s.note(errSplit)
		if err := k.renew(t.Context()); !errors.Is(err, errSplit) || k.lease.Held() {
			t.Errorf("answered %v, held: %v", err, k.lease.Held())
		}
	})
}

// TestSlowBatchKeepsTheLease: while a batch of this host waits for a lock, the
// lease is renewed on a separate connection.
func TestSlowBatchKeepsTheLease(t *testing.T) {
	t.Parallel()
	server, url := fleetEngine(t)
	clock := &ticks{now: time.Hour}
	one := openFleetStore(t, filepath.Join(t.TempDir(), "one.db"))
	s := shipperOf(one, url, "one")
	s.keepLease(lease.New(clock.read, 15*time.Second), 0)
	defer s.hangUp()
	defer s.keeper.hangUp()
	if err := s.once(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := s.keeper.renew(t.Context()); err != nil {
		t.Fatal(err)
	}
	work(t, one)
	letGo := server.Lock("fleet", `UPDATE fleet_marks SET beats = beats + 1`)
	shipped := make(chan error, 1)
	go func() { shipped <- s.once(context.WithoutCancel(t.Context())) }()
	clock.pass(12 * time.Second)
	if err := s.keeper.renew(t.Context()); err != nil || !s.keeper.lease.Held() {
		t.Errorf("beside a slow batch: %v, held: %v", err, s.keeper.lease.Held())
	}
	letGo()
	if err := <-shipped; err != nil {
		t.Errorf("the batch behind the lock: %v", err)
	}
}

// TestNoFleetAnswerWithoutALease: a write is confirmed as stored in the engine
// only while this host holds its lease.
func TestNoFleetAnswerWithoutALease(t *testing.T) {
	t.Parallel()
	w := newWaiters()
	clock := &ticks{now: time.Hour}
	w.lease = lease.New(clock.read, 15*time.Second)
	w.confirmed(10, nil, nil, "")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := w.Wait(ctx, 10, "o a/r", false); ckpt.CodeOf(err) != ckpt.CodeNotReplicated || !strings.Contains(err.Error(), "lease") {
		t.Fatalf("without a lease: %v", err)
	}
	answer := make(chan error, 1)
	go func() { answer <- w.Wait(t.Context(), 10, "o a/r", false) }()
	for !w.any() {
		<-w.wake
	}
	w.lease.Renewed(clock.read())
	w.renewed()
	if err := <-answer; err != nil {
		t.Errorf("after the renewal: %v", err)
	}
	if err := w.Wait(ctx, 10, "o a/r", false); err != nil {
		t.Errorf("with a lease: %v", err)
	}
	clock.pass(time.Minute)
	if err := w.Wait(ctx, 10, "o a/r", false); ckpt.CodeOf(err) != ckpt.CodeNotReplicated {
		t.Errorf("after the lease: %v", err)
	}
}

// TestLeaseWhoseAnswerIsLost: a host that took its lease anew, and did not get the answer, is
// not taken for another daemon.
func TestLeaseWhoseAnswerIsLost(t *testing.T) {
	t.Parallel()
	server, url := fleetEngine(t)
	relay := server.Relay()
	one := openFleetStore(t, filepath.Join(t.TempDir(), "one.db"))
	s := shipperOf(one, url, "one")
	s.url = func() (string, error) { return relay.URL("fleet"), nil }
	s.keepLease(lease.New(lease.Boottime, 15*time.Minute), 0)
	k := s.keeper
	defer k.hangUp()
	connect := func() error {
		k.hangUp()
		return k.connect(t.Context())
	}
	incarnation := func() string { return server.Rows("fleet", `SELECT incarnation FROM fleet_hosts`)[0] }
	if err := connect(); err != nil {
		t.Fatal(err)
	}
	relay.Cut(pgtest.FromServer, 0)
	if err := connect(); err != nil {
		t.Fatal(err)
	}
	_, size := relay.Cut(pgtest.FromServer, 0)
	lost := 0
	for cut := size - 1; cut > size-20; cut -= 6 {
		before := incarnation()
		relay.Cut(pgtest.FromServer, cut)
		err := connect()
		relay.Cut(pgtest.FromServer, 0)
		if err == nil || incarnation() == before {
			continue
		}
		lost++
		if err := connect(); err != nil {
			t.Errorf("after its answer was cut off at %d of %d bytes: %v", cut, size, err)
		}
	}
	if lost == 0 {
		t.Error("no answer was lost")
	}
}
