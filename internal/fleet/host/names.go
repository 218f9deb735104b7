package host

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db/journal"
	"github.com/ckptsidecar/ckptsidecar/internal/fleet"
	"github.com/ckptsidecar/ckptsidecar/internal/fleet/pg"
	"github.com/ckptsidecar/ckptsidecar/internal/ipc/server"
)

// hereMost is how many runs are remembered as begun here.
const hereMost = 1 << 16

// mayBeBorn refuses to begin a run whose name another host has, if the agent's policy asks for the
// fleet. It says this early and in words. The engine itself makes sure that a name has one run: it
// takes no second one, and what is saved for that one is answered as fenced.
func (c *claimant) mayBeBorn(ctx context.Context, sc ckpt.Scope, ref ckpt.RunRef, what server.Beginning) (err error) {
	defer func() { err = c.engineFailed(ctx, sc, err) }()
	name := fleet.RunName(sc.Whose(), ref.Agent, runOr(ref.Run))
	if _, known := c.here.Load(name); ref.Check() != nil || sc.Whose() == ckpt.AllOwners || known && what != server.BeginRun {
		return nil
	}
	if p, err := c.store.FleetPolicyOf(sc.Whose(), ref.Agent); err != nil || !journal.TakesNames(p) {
		return nil
	}
	here, elsewhere, err := c.stored(ctx, sc, ref)
	switch {
	case err != nil:
		return err
	case here && !elsewhere:
		c.begun(name)
		return nil
	case here && what != server.BeginRun: // the store refuses it
		return nil
	}
	return c.askName(ctx, sc, ref)
}

// stored reports whether a run is stored here, and whether another host owns it.
func (c *claimant) stored(ctx context.Context, sc ckpt.Scope, ref ckpt.RunRef) (here, elsewhere bool, err error) {
	_, elsewhere, err = journal.New(c.store.Core).OtherOwner(ctx, sc.Whose(), ref.Agent, runOr(ref.Run))
	if errors.Is(err, sql.ErrNoRows) {
		return false, false, nil
	}
	return err == nil, elsewhere, err
}

// begun remembers that a run is stored here.
func (c *claimant) begun(name string) {
	if c.hereN.Add(1) > hereMost {
		c.here.Clear()
		c.hereN.Store(0)
	}
	c.here.Store(name, true)
}

// askName refuses a name that another host has. If the engine cannot be asked, it decides when the
// run is shipped.
func (c *claimant) askName(ctx context.Context, sc ckpt.Scope, ref ckpt.RunRef) error {
	done, err := c.turns.asks.take(ctx)
	if err != nil {
		return err
	}
	defer done()
	r := &ckpt.ResumeRequest{Agent: ref.Agent, Run: ref.Run}
	e, all, err := c.find(ctx, sc, r)
	if err != nil {
		c.note(err)
		return nil
	}
	defer e.Close()
	if err := c.letGoOfBirth(ctx, e, sc, r); err != nil {
		return err
	}
	mine, sealed, err := c.allowed(sc, all)
	if err != nil {
		return err
	}
	for _, run := range append(mine, sealed...) {
		if run.Here == sc.Whose() && run.DB != c.host.DB {
			return c.hasName(&run)
		}
	}
	return nil
}

// hasName says which host has a run of a name, and both ways on.
func (c *claimant) hasName(run *fleet.Claimable) error {
	arg := run.Agent
	if run.Run != ckpt.MainRun {
		arg += " --run " + run.Run
	}
	how, wait := fmt.Sprintf("is silent for %.0f s:", run.SeenAgo), run.Wait(c.grace)
	switch {
	case wait > 0 && run.Lease != nil:
		how = fmt.Sprintf("holds its lease: in %.0f s, or after `ckptsidecar fleet release` there,", wait.Seconds())
	case wait > 0:
		how = fmt.Sprintf("was heard of %.0f s ago: once it is silent for %.0f s,", run.SeenAgo, fleet.SilentFor.Seconds())
	}
	return &ckpt.Error{Code: ckpt.CodeConflict, RetryAfter: wait, Host: run.Host, Message: fmt.Sprintf(
		"host %s has run %s of %s and %s `ckptsidecar fleet claim %s/%s` brings it here, or `ckptsidecar resume %s --here` begins anew",
		run.Host, run.Run, run.Agent, how, run.Agent, run.Run, arg)}
}

// anew takes the name of a run of another host for a run that begins here. It needs what a claim
// needs. The other host loses its run, and the engine keeps it.
func (c *claimant) anew(ctx context.Context, sc ckpt.Scope, r *ckpt.ResumeRequest) error {
	p, err := c.store.FleetPolicyOf(sc.Whose(), r.Agent)
	if err == nil && !journal.TakesNames(p) || r.DryRun {
		return nil
	}
	here, elsewhere, err := c.stored(ctx, sc, ckpt.RunRef{Agent: r.Agent, Run: r.Run})
	if err != nil || here && !elsewhere {
		return err
	}
	done, err := c.turns.asks.take(ctx)
	if err != nil {
		return err
	}
	defer done()
	e, all, err := c.find(ctx, sc, r)
	if err != nil {
		return err
	}
	defer e.Close()
	if err := c.letGoOfBirth(ctx, e, sc, r); err != nil {
		return err
	}
	for i := range all {
		if run := &all[i]; run.Named {
			return c.takeName(ctx, e, sc, run, r.Force && sc.Admin)
		}
	}
	return nil
}

func (c *claimant) takeName(ctx context.Context, e *pg.Engine, sc ckpt.Scope, run *fleet.Claimable, force bool) error {
	ground := run.Ground(c.grace, force)
	switch {
	case run.DB == c.host.DB:
		return ckpt.Errorf(ckpt.CodeConflict, "the engine has given run %s of %s to this host, and it is not here yet: bring it with `ckptsidecar fleet claim %s/%s`",
			run.Run, run.Agent, run.Agent, run.Run)
	case ground == "" || run.Takeover == string(ckpt.TakeoverNever) && !force:
		return c.stillOwned(run, "")
	}
	if _, err := e.Claim(ctx, fleet.Claim{Run: run, To: c.host.DB, By: sc.Caller.Owner, Ground: ground, Grace: c.grace, Anew: true}); err != nil {
		return &ckpt.Error{Code: ckpt.CodeBusy, RetryAfter: time.Second, Err: err,
			Message: fmt.Sprintf("the name of run %s of %s was not taken from host %s: try again", run.Run, run.Agent, run.Host)}
	}
	return nil
}

// letGoOfBirth removes a run of this host that the engine has never taken, because another host has
// a run of its name. Nothing of it was acknowledged, unless the policy says degrade.
func (c *claimant) letGoOfBirth(ctx context.Context, e *pg.Engine, sc ckpt.Scope, r *ckpt.ResumeRequest) error {
	j := journal.New(c.store.Core)
	uid, err := j.RunUID(ctx, sc.Whose(), r.Agent, runOr(r.Run))
	if err != nil { // it is not here
		return nil
	}
	taken, err := c.takenFrom(ctx, e)
	if err != nil {
		return err
	}
	for i := range taken {
		if taken[i].UID == uid && taken[i].How == fleet.HowBorn {
			return c.letGo(ctx, sc, &taken[i], r.Agent, runOr(r.Run))
		}
	}
	return nil
}

// letGo removes what is left here of a run that another host has. It refuses if an agent was told
// that something is safe which only this host has.
func (c *claimant) letGo(ctx context.Context, sc ckpt.Scope, t *fleet.Taken, agent, run string) error {
	s, err := journal.New(c.store.Core).Strand(ctx, t)
	if err != nil || s == nil {
		return err
	}
	if s.Checkpoints+s.Rows > 0 && !acknowledgesNothing(c.store.FleetPolicyOf, s) {
		return &ckpt.Error{Code: ckpt.CodeConflict, Host: t.Host, Message: fmt.Sprintf(
			"host %s has run %s of %s, and %d checkpoints and %d rows of the audit log exist only here: %s",
			t.Host, run, agent, s.Checkpoints, s.Rows, keepOrDelete(agent, run))}
	}
	admin := sc
	admin.Admin, admin.Target, admin.Reason = true, sc.Whose(), fmt.Sprintf("host %s of the fleet has it", t.Host)
	_, err = c.store.DeleteRun(ctx, admin, ckpt.RunRef{Agent: agent, Run: run}, true)
	return err
}

// keepOrDelete says what a person does about what only this host has of a run.
func keepOrDelete(agent, run string) string {
	return fmt.Sprintf("keep them with `ckptsidecar export %s -o FILE`, then delete the run here with `ckptsidecar run delete %s --run %s`", agent, agent, run)
}

// policyOf returns the policy of an agent of an owner.
type policyOf func(owner, agent string) (*ckpt.Policy, error)

// acknowledgesNothing reports whether this host has told the agent of nothing that the strand has:
// its policy lets nothing be acknowledged before the engine has it, and has done so all the time.
func acknowledgesNothing(policy policyOf, s *fleet.Strand) bool {
	p, err := policy(s.Owner, s.Agent)
	return err == nil && !s.Changed && p.Durability == ckpt.DurabilityFleet && p.OnOutage == ckpt.OutageRefuse
}

// strands returns the runs that other hosts have claimed and of which only this host has checkpoints
// that agents were told to be safe.
func (s *shipper) strands(ctx context.Context) ([]fleet.Strand, error) {
	all := []fleet.Strand{}
	for _, t := range s.takenNow() {
		one, err := s.reader.Strand(ctx, &t)
		if err != nil {
			return nil, err
		}
		if one != nil && one.Checkpoints > 0 && !acknowledgesNothing(s.policy, one) {
			all = append(all, *one)
		}
	}
	return all, nil
}
