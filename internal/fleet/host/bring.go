package host

import (
	"context"
	"errors"
	"fmt"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db/journal"
	"github.com/ckptsidecar/ckptsidecar/internal/fleet"
	"github.com/ckptsidecar/ckptsidecar/internal/fleet/pg"
)

// askTimeout is how long a resumption waits for the engine before it looks at this host
// only.
const askTimeout = 10 * time.Second

// standbyRetry is the pause after which a standby asks again for a run that no host has.
const standbyRetry = 5 * time.Second

// Bring claims the run that a resumption asks for and brings it to this host, if another
// host has it, its agent's policy says takeover: auto, and the caller owns it here too.
// It notes in the request what the plan must say. If the engine cannot be asked, agents
// whose runs can move must wait, and all others go on with what is on this host.
func (c *claimant) Bring(ctx context.Context, sc ckpt.Scope, r *ckpt.ResumeRequest) error {
	return c.bringFor(ctx, sc, r, false)
}

// BringThread brings the run of a thread that a graph reads. A graph asks no person before it goes on, so a run that
// may have done more than the engine knows is refused.
func (c *claimant) BringThread(ctx context.Context, sc ckpt.Scope, ref ckpt.RunRef) error {
	return c.bringFor(ctx, sc, &ckpt.ResumeRequest{Agent: ref.Agent, Run: ref.Run}, true)
}

// bringFor brings the run of a resumption. With sure it refuses a run of another host that may have done more than the
// engine knows.
func (c *claimant) bringFor(ctx context.Context, sc ckpt.Scope, r *ckpt.ResumeRequest, sure bool) (err error) {
	defer func() { err = c.engineFailed(ctx, sc, err) }()
	if r.Check() != nil || sc.Whose() == ckpt.AllOwners {
		return nil
	}
	if r.Fleet != nil && !*r.Fleet {
		return c.anew(ctx, sc, r)
	}
	// The engine must be asked about a run that is not here, and about a run that another host has claimed.
	if here, elsewhere, err := c.stored(ctx, sc, ckpt.RunRef{Agent: r.Agent, Run: r.Run}); err != nil || here && !elsewhere {
		r.Claimed = c.brought.plan(ctx, journal.New(c.store.Core), sc.Whose(), r.Agent, runOr(r.Run))
		return err
	}
	done, err := c.turns.wait(ctx, fleet.RunName(sc.Whose(), r.Agent, runOr(r.Run)))
	if err != nil {
		return err
	}
	defer done()
	e, now, err := c.ask(ctx, sc, r, sure)
	if e == nil {
		return err
	}
	defer e.Close()
	if err != nil {
		return err
	}
	if now == nil { // it may have been brought while this call waited
		r.Claimed = c.brought.plan(ctx, journal.New(c.store.Core), sc.Whose(), r.Agent, runOr(r.Run))
		return nil
	}
	return c.fetch(ctx, e, sc, now, r)
}

// ask claims the run that a resumption asks for. It returns no connection if the engine
// cannot be asked, and no run if there is none to bring.
func (c *claimant) ask(ctx context.Context, sc ckpt.Scope, r *ckpt.ResumeRequest, sure bool) (*pg.Engine, *fleet.Claimable, error) {
	done, err := c.turns.asks.take(ctx)
	if err != nil {
		return nil, nil, err
	}
	defer done()
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	e, all, err := c.find(ctx, sc, r)
	if err != nil {
		c.note(err)
		if r.Standby || c.moves(sc, r.Agent) {
			return nil, nil, err
		}
		return nil, nil, nil
	}
	if err := c.letGoOfBirth(ctx, e, sc, r); err != nil {
		return e, nil, err
	}
	return c.bring(ctx, e, sc, r, sure, all)
}

// find asks the engine for the runs that fit a resumption.
func (c *claimant) find(ctx context.Context, sc ckpt.Scope, r *ckpt.ResumeRequest) (*pg.Engine, []fleet.Claimable, error) {
	e, err := c.reach(ctx)
	if err != nil {
		return nil, nil, err
	}
	ask := fleet.ClaimRequest{Agent: r.Agent, Run: runOr(r.Run), Principal: c.who().Principal(sc.Whose())}
	if sc.Admin {
		ask.OrOwner = sc.Whose()
	}
	all, err := e.Find(ctx, ask)
	if err != nil {
		e.Close()
	}
	return e, all, err
}

func runOr(name string) string {
	if name == "" {
		return ckpt.MainRun
	}
	return name
}

// moves reports whether an agent's runs can come from other hosts by themselves.
func (c *claimant) moves(sc ckpt.Scope, agent string) bool {
	p, err := c.store.FleetPolicyOf(sc.Whose(), agent)
	return err != nil || p.Takeover == ckpt.TakeoverAuto
}

// reach connects to the engine if that has a chance of success. A host without its lease
// claims nothing: it could not act for the run.
func (c *claimant) reach(ctx context.Context) (*pg.Engine, error) {
	if c.failing != nil && c.failing() {
		return nil, &ckpt.Error{Code: ckpt.CodeBusy, RetryAfter: time.Second,
			Message: "the fleet's engine is away, so it is not known whether another host has the run: try again"}
	}
	if !c.lease.Held() {
		return nil, &ckpt.Error{Code: ckpt.CodeBusy, RetryAfter: time.Second,
			Message: "this host does not hold its lease in the fleet, so it can claim no run: try again"}
	}
	return c.dial(ctx)
}

// bring claims the most recently changed run of all that fit. It returns nil if there is
// none to bring.
func (c *claimant) bring(ctx context.Context, e *pg.Engine, sc ckpt.Scope, r *ckpt.ResumeRequest, sure bool,
	all []fleet.Claimable) (*pg.Engine, *fleet.Claimable, error) {
	mine, sealed, err := c.allowed(sc, all)
	if err != nil {
		return e, nil, err
	}
	for _, run := range mine {
		if run.Here != sc.Whose() {
			continue
		}
		same, named, err := journal.New(c.store.Core).HasRun(ctx, sc.Whose(), run.Agent, run.Run, run.UID)
		switch {
		case err != nil:
			return e, nil, err
		case same && run.DB == c.host.DB, named && !same: // it is here, or another run of its name is
			return e, nil, nil
		case run.DB != c.host.DB && run.Takeover != string(ckpt.TakeoverAuto) && (same || r.Standby): // fenced, or for a person
			continue
		case run.DB != c.host.DB && run.Takeover != string(ckpt.TakeoverAuto):
			return e, nil, c.hasName(&run)
		case run.DB != c.host.DB && run.Ground(c.grace, r.Force && sc.Admin) == "":
			return e, nil, c.stillOwned(&run, "")
		case r.DryRun:
			return e, nil, &ckpt.Error{Code: ckpt.CodeConflict, Host: run.Host, Message: fmt.Sprintf(
				"run %s of %s is on host %s of the fleet, and no plan is made before a resumption has claimed it", run.Run, run.Agent, run.Host)}
		}
		agent, err := c.mustOpen(ctx, e, sc, &run, false, "")
		if err != nil {
			return e, nil, standsBy(r, err)
		}
		if sure && run.DB != c.host.DB {
			if err := mustBeSure(&run, agent); err != nil {
				return e, nil, err
			}
		}
		return c.claimFor(ctx, e, sc, &run, same, r)
	}
	if err := c.mustNotBegin(ctx, sc, sealed); err != nil {
		return e, nil, standsBy(r, err)
	}
	if r.Standby {
		return e, nil, &ckpt.Error{Code: ckpt.CodeConflict, RetryAfter: standbyRetry,
			Message: fmt.Sprintf("no host of the fleet has run %s of %s that you own and whose policy says takeover: auto", runOr(r.Run), r.Agent)}
	}
	return e, nil, nil
}

// mustNotBegin refuses to begin a run anew here while the fleet has it, and only the key is missing.
func (c *claimant) mustNotBegin(ctx context.Context, sc ckpt.Scope, sealed []fleet.Claimable) error {
	for i := range sealed {
		run := &sealed[i]
		if run.Here != sc.Whose() {
			continue
		}
		_, named, err := journal.New(c.store.Core).HasRun(ctx, run.Here, run.Agent, run.Run, run.UID)
		switch {
		case err != nil:
			return err
		case !named: // a run of this name that is here goes on here, or is fenced
			return keyMissing(sc, run, run.KeyID, "")
		}
	}
	return nil
}

// standsBy lets a standby ask again for a run that is refused. The key that is missing may come.
func standsBy(r *ckpt.ResumeRequest, err error) error {
	var e *ckpt.Error
	if r.Standby && errors.As(err, &e) && e.Code == ckpt.CodeConflict {
		e.RetryAfter = standbyRetry
	}
	return err
}

// mustBeSure refuses a run that may have done more on its host than the engine knows.
func mustBeSure(run *fleet.Claimable, agent *fleet.LostAgent) error {
	if run.Released && run.Status != string(ckpt.RunRunning) || durableFleet(agent.Doc) {
		return nil
	}
	return &ckpt.Error{Code: ckpt.CodeConflict, Host: run.Host, Message: fmt.Sprintf("run %s of %s is on host %s of the fleet, and nobody knows what it did "+
		"there after it was shipped last: bring it here with `ckptsidecar resume %s --run %s`, and then run the graph again", run.Run, run.Agent, run.Host, run.Agent, run.Run)}
}

// claimFor claims a run for a resumption.
func (c *claimant) claimFor(ctx context.Context, e *pg.Engine, sc ckpt.Scope, run *fleet.Claimable, same bool,
	r *ckpt.ResumeRequest) (*pg.Engine, *fleet.Claimable, error) {
	if same {
		if err := c.clear(ctx, e, sc, run); err != nil {
			return e, nil, err
		}
	}
	return c.take(ctx, e, sc, run, run.Ground(c.grace, r.Force && sc.Admin))
}

// fetch brings a run here that the engine has given to this host. A large run may take
// long, and only this host can go on with it now.
func (c *claimant) fetch(ctx context.Context, e *pg.Engine, sc ckpt.Scope, run *fleet.Claimable, r *ckpt.ResumeRequest) error {
	sc.Reason = reasonWith(r.Reason, "resumed here")
	if _, err := c.takeOver(ctx, e, sc, run, false); err != nil {
		return standsBy(r, err)
	}
	r.Claimed = planOf(run)
	c.brought.keep(fleet.RunName(run.Here, run.Agent, run.Run), r.Claimed)
	return nil
}

// planOf returns what the plan of a claimed run says about the claim.
func planOf(run *fleet.Claimable) *ckpt.PlanFleet {
	p := &ckpt.PlanFleet{FromHost: run.Host, Term: run.Term, AcknowledgedTo: run.Seq, StrandPossible: run.How != fleet.HowReleased}
	if !run.Sure {
		p.LostAtMost = ckpt.Duration(time.Duration(run.SeenAgo * float64(time.Second)).Round(time.Millisecond))
	}
	return p
}

// clear removes what is left here of a run that another host had claimed from this one,
// so that the run can come back.
func (c *claimant) clear(ctx context.Context, e *pg.Engine, sc ckpt.Scope, run *fleet.Claimable) error {
	taken, err := c.takenFrom(ctx, e)
	if err != nil {
		return err
	}
	for i := range taken {
		if taken[i].UID != run.UID {
			continue
		}
		return c.letGo(ctx, sc, &taken[i], run.Agent, run.Run)
	}
	return ckpt.Errorf(ckpt.CodeConflict, "run %s of %s is here and on host %s: delete it here, then resume it", run.Run, run.Agent, run.Host)
}
