package host

import (
	"context"
	"errors"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db"
	"github.com/ckptsidecar/ckptsidecar/internal/fleet"
	"github.com/ckptsidecar/ckptsidecar/internal/fleet/pg"
)

// view answers the API's questions about the fleet. Each question has its own
// connection to the engine, so that it never waits for a batch.
type view struct {
	shipper *shipper
	store   *db.Store
	asking  chan struct{} // one question at a time
}

func newView(s *shipper, store *db.Store) *view {
	return &view{shipper: s, store: store, asking: make(chan struct{}, 1)}
}

const engineAndHosts = "look at the fleet's engine and hosts"

// FleetStatus returns the state of shipping. It does not ask the engine.
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
		Mark: t.mark, Unshipped: rows, Lag: lag, Batches: t.batches, Took: t.took.Seconds(), Clear: v.shipper.keys == nil, Keys: t.sealing}
	st.WentBack, st.Ship = t.wentBack, fleet.ShipAll
	if v.shipper.choice.ByPolicy {
		st.Ship = fleet.ShipPolicy
	}
	if st.Erasures = t.erasures; st.Erasures == nil {
		st.Erasures = []fleet.ErasureShown{}
	}
	if st.Strands, err = v.shipper.strands(ctx); err != nil {
		return nil, err
	}
	if st.Keys == nil {
		st.Keys = []string{}
	}
	ids := v.shipper.identities()
	st.Principals, st.Realms = orEmpty(ids.Named), orEmpty(ids.Realms)
	v.shipper.keeper.tell(st)
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

// orEmpty replaces a nil map by an empty one, which JSON shows as an object.
func orEmpty(m map[string]string) map[string]string {
	if m == nil {
		return map[string]string{}
	}
	return m
}

// stateOf returns the name of the state of shipping.
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
	case errors.Is(err, pg.ErrSchema), errors.Is(err, pg.ErrMoved), errors.Is(err, pg.ErrRights):
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

// FleetRuns lists runs of the fleet. An administrator sees the runs of all users. A
// user sees the runs of his principal: uid 1000 of another host is another person,
// unless the settings of both hosts say that they are the same one.
func (v *view) FleetRuns(ctx context.Context, sc ckpt.Scope, q fleet.RunsQuery) (*fleet.Runs, error) {
	q.For, q.Owner = v.asker(sc)
	v.auditRead(sc, "read_fleet_runs", q.Agent, "")
	runs, err := askEngine(ctx, v, sc.Admin, func(e *pg.Engine) (*fleet.Runs, error) { return e.Runs(ctx, q) })
	if err != nil {
		return nil, err
	}
	for i := range runs.Runs {
		runs.Runs[i].This = runs.Runs[i].DB == v.shipper.host.DB
	}
	return runs, nil
}

// askEngine asks the engine on a connection of its own. Only administrators see the
// reason of a failure, because it names servers and roles.
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

// asker returns whose rows a caller may see. An administrator sees all rows, or those
// of one owner if he names one. A user sees the rows of his principal.
func (v *view) asker(sc ckpt.Scope) (_ *fleet.Asker, owner string) {
	if !sc.Admin {
		ids := v.shipper.identities()
		return &fleet.Asker{Principal: ids.Principal(sc.Owner)}, ""
	}
	if sc.Target != ckpt.AllOwners {
		owner = sc.Target
	}
	return nil, owner
}

// auditRead notes in the audit log what an administrator reads of other users.
func (v *view) auditRead(sc ckpt.Scope, what, agent, run string) {
	if !sc.Admin {
		return
	}
	if sc.Target == "" {
		sc.Target = ckpt.AllOwners
	}
	v.store.AuditRead(sc, what, agent, run)
}
