package host

import (
	"context"
	"errors"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db"
	"github.com/ckptsidecar/ckptsidecar/internal/fleet"
	"github.com/ckptsidecar/ckptsidecar/internal/fleet/pg"
)

// view answers what the API tells of the fleet. Each question has a connection of
// its own to the engine, so that it never waits for a batch.
type view struct {
	shipper *shipper
	store   *db.Store
	asking  chan struct{} // one question at a time
}

func newView(s *shipper, store *db.Store) *view {
	return &view{shipper: s, store: store, asking: make(chan struct{}, 1)}
}

const engineAndHosts = "look at the fleet's engine and hosts"

// FleetStatus says how shipping goes. It does not ask the engine.
func (v *view) FleetStatus(ctx context.Context, sc ckpt.Scope) (*fleet.Status, error) {
	if err := mustAdminister(sc, engineAndHosts); err != nil {
		return nil, err
	}
	t := v.shipper.told()
	rows, lag, err := v.shipper.behind(ctx, t.mark.N)
	if err != nil {
		return nil, err
	}
	host := v.shipper.host
	st := &fleet.Status{On: true, State: stateOf(&t), Name: host.Name, DB: host.DB, Engine: t.engine, EngineID: t.engineID,
		Mark: t.mark, Unshipped: rows, Lag: lag, Batches: t.batches, Took: t.took.Seconds(), Clear: len(t.sealing) == 0, Keys: t.sealing}
	st.WentBack, st.Ship = t.wentBack, fleet.ShipAll
	if v.shipper.choice.ByPolicy {
		st.Ship = fleet.ShipPolicy
	}
	if st.Erasures = t.erasures; st.Erasures == nil {
		st.Erasures = []fleet.ErasureShown{}
	}
	if st.Keys == nil {
		st.Keys = []string{}
	}
	ids := v.shipper.identities()
	st.Principals, st.Realms = orEmpty(ids.Named), orEmpty(ids.Realms)
	v.shipper.keeper.tell(st)
	st.Usage = *v.shipper.quota.Usage()
	if j := v.shipper.janitor; j != nil {
		st.Janitor, st.Cleaned = j.holds.Load(), j.runs.Load()
	}
	if url, err := v.shipper.url(); err == nil {
		st.Address = pg.Address(url)
	}
	if t.engine != "" {
		st.Profile = fleet.ProfileOf(t.engine)
	}
	if t.failure != nil {
		st.Error = t.failure.Error()
	}
	return st, nil
}

// orEmpty is a map that JSON shows as an object.
func orEmpty(m map[string]string) map[string]string {
	if m == nil {
		return map[string]string{}
	}
	return m
}

// stateOf names how shipping goes.
func stateOf(t *shipped) string {
	switch err := t.failure; {
	case err == nil && t.met:
		return fleet.StateShipping
	case err == nil:
		return fleet.StateConnecting
	case errors.Is(err, errSplit):
		return fleet.StateSplit
	case errors.Is(err, pg.ErrFull):
		return fleet.StateFull
	case errors.Is(err, pg.ErrRestored), errors.Is(err, pg.ErrSchema), errors.Is(err, pg.ErrMoved):
		return fleet.StateRefused
	}
	return fleet.StateUnreachable
}

// FleetHosts lists the hosts of the fleet.
func (v *view) FleetHosts(ctx context.Context, sc ckpt.Scope) (*fleet.Hosts, error) {
	if err := mustAdminister(sc, engineAndHosts); err != nil {
		return nil, err
	}
	return askEngine(ctx, v, true, func(e *pg.Engine) (*fleet.Hosts, error) { return e.Hosts(ctx, v.shipper.host.DB) })
}

// FleetRuns lists runs of the fleet. An administrator sees those of everybody. A user
// sees what belongs to his principal: uid 1000 of another host is somebody else unless
// the settings of both hosts say that it is the same one.
func (v *view) FleetRuns(ctx context.Context, sc ckpt.Scope, q fleet.RunsQuery) (*fleet.Runs, error) {
	q.For, q.Owner = v.asker(sc)
	v.auditRead(sc, "read_fleet_runs", q.Agent, "")
	return askEngine(ctx, v, sc.Admin, func(e *pg.Engine) (*fleet.Runs, error) { return e.Runs(ctx, q) })
}

// askEngine asks the engine on a connection of its own. What it says where it fails is
// for administrators: it names servers and roles.
func askEngine[T any](ctx context.Context, v *view, admin bool, ask func(*pg.Engine) (*T, error)) (*T, error) {
	select {
	case v.asking <- struct{}{}:
		defer func() { <-v.asking }()
	case <-ctx.Done():
		return nil, ckpt.Errorf(ckpt.CodeBusy, "others are asking the fleet's engine, and it is slow: try again")
	}
	answer, err := dialAndAsk(ctx, v.shipper.url, ask)
	switch {
	case err == nil:
		return answer, nil
	case !admin:
		return nil, ckpt.Errorf(ckpt.CodeBusy, "the fleet's engine cannot be asked now; an administrator is told why")
	}
	return nil, ckpt.Wrap(ckpt.CodeBusy, err, "the fleet's engine cannot be asked: %v", err)
}

func dialAndAsk[T any](ctx context.Context, url func() (string, error), ask func(*pg.Engine) (*T, error)) (*T, error) {
	at, err := url()
	if err != nil {
		return nil, err
	}
	e, err := pg.Dial(ctx, at)
	if err != nil {
		return nil, err
	}
	defer e.Close()
	return ask(e)
}

// asker says whose rows a caller may see: an administrator everybody's, of one owner
// where he names one, and a user what belongs to his principal.
func (v *view) asker(sc ckpt.Scope) (_ *fleet.Asker, owner string) {
	if !sc.Admin {
		ids := v.shipper.identities()
		return &fleet.Asker{Principal: ids.Principal(sc.Owner), DB: ids.DB, Owner: sc.Owner}, ""
	}
	if sc.Target != ckpt.AllOwners {
		owner = sc.Target
	}
	return nil, owner
}

// auditRead notes what an administrator reads of others.
func (v *view) auditRead(sc ckpt.Scope, what, agent, run string) {
	if !sc.Admin {
		return
	}
	if sc.Target == "" {
		sc.Target = ckpt.AllOwners
	}
	v.store.AuditRead(sc, what, agent, run)
}
