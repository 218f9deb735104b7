package host

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ckptsidecar/ckptsidecar/internal/db"
	"github.com/ckptsidecar/ckptsidecar/internal/db/journal"
	"github.com/ckptsidecar/ckptsidecar/internal/fleet"
	"github.com/ckptsidecar/ckptsidecar/internal/fleet/lease"
	"github.com/ckptsidecar/ckptsidecar/internal/ipc/server"
)

// Member is a running host as a member of its fleet. A host without an engine has a Member too: it
// does not confirm what agents with durability fleet write.
type Member struct {
	store        *db.Store
	shipper      *shipper      // nil if no engine is set
	writeTimeout time.Duration // how long a request waits for the engine

	once  sync.Once
	claim *claimant
}

// New makes the member for a store. From then on, the member refuses writes to runs that other
// hosts had claimed when the daemon last ran.
func New(ctx context.Context, store *db.Store, c Config, log *slog.Logger) *Member {
	m := &Member{store: store, writeTimeout: c.Store.WriteTimeout}
	word, reader := store.Opt.Path+wordSuffix, journal.New(store.Core)
	taken, err := fenceAsBefore(ctx, word, reader, store.ID)
	if err != nil {
		log.Error("it is not known which runs of this host other hosts have claimed; the fleet's engine tells when it can be reached", "error", err)
	}
	if c.EngineFile == "" {
		return m
	}
	m.shipper = &shipper{
		wordFile: word, line: line{url: c.URL}, keys: c.keys(), reader: reader, log: log, host: c.host(store.ID),
		bytes: c.BatchBytes, choice: journal.Choice{ByPolicy: c.ByPolicy},
		pace: fleet.Pace{Floor: c.Interval, Most: pauseMost}, waiters: newWaiters(), assume: c.Assume, taken: taken,
		erase: store.Erase, policy: store.FleetPolicyOf, inAudit: store.NoteWentBack,
	}
	m.shipper.who.Store(identitiesOf(c.Users, store.ID))
	m.shipper.keepHealer()
	m.shipper.keepLease(lease.New(lease.Boottime, c.Lease), c.Grace)
	return m
}

// Run ships and renews the lease until ctx ends. Without an engine
// it returns at once.
func (m *Member) Run(ctx context.Context) {
	if m.shipper == nil {
		return
	}
	var all sync.WaitGroup
	all.Go(func() { _ = m.shipper.Run(ctx) })
	all.Go(func() { _ = m.shipper.keeper.Run(ctx) })
	all.Wait()
}

// API returns what the server asks about the fleet, nil without an engine.
func (m *Member) API() server.Fleet {
	if m.shipper == nil {
		return nil
	}
	return struct {
		*claimant
		*view
	}{m.claims(), newView(m.shipper, m.store)}
}

// claims returns what asks the engine for runs. There must be an engine.
func (m *Member) claims() *claimant {
	s := m.shipper
	m.once.Do(func() {
		m.claim = &claimant{url: s.url, store: m.store, host: s.host, who: s.identities, keys: s.keys, lease: m.lease(), keeper: s.keeper, healer: s.healer, remember: s.remember,
			grace: s.grace, shipped: s.shippedTo, learn: s.owns, failing: func() bool { return s.told().failing },
			turns: newTurns(), brought: &s.brought, log: s.log}
	})
	return m.claim
}

// Metrics returns the metrics of the fleet, nil without an engine.
func (m *Member) Metrics() prometheus.Collector {
	if m.shipper == nil {
		return nil
	}
	return m.shipper
}

// Problem returns what an operator should know, "" for nothing.
func (m *Member) Problem() string {
	if m.shipper == nil {
		return ""
	}
	return m.shipper.Problem()
}

// SetUsers puts changed identities into use, and tells the engine.
func (m *Member) SetUsers(users fleet.Identities) {
	if m.shipper != nil {
		m.shipper.who.Store(identitiesOf(users, m.store.ID))
		m.shipper.renamed.Store(true)
	}
}

// ReadKeys makes the shipper read the key file again before the next batch.
func (m *Member) ReadKeys() {
	if m.shipper != nil {
		m.shipper.renamed.Store(true)
	}
}

// askedLease returns this host's lease when the engine was asked for it once, or does not
// answer in time. It returns nil if the host holds none.
func (m *Member) askedLease() *lease.Lease {
	l := m.lease()
	if l != nil {
		m.shipper.keeper.awaitFirst()
	}
	return l
}

// lease returns this host's lease, nil if the host holds none.
func (m *Member) lease() *lease.Lease {
	if m.shipper == nil || m.shipper.keeper == nil {
		return nil
	}
	return m.shipper.keeper.lease
}
