package host

import (
	"context"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db/journal"
	"github.com/ckptsidecar/ckptsidecar/internal/fleet"
	"github.com/ckptsidecar/ckptsidecar/internal/ipc/server"
)

// Before refuses what must not begin: runs whose names other hosts have, and what
// mayBegin refuses.
func (m *Member) Before(ctx context.Context, sc ckpt.Scope, ref ckpt.RunRef, what server.Beginning) error {
	if what != server.BeginRun && what != server.BeginSave {
		if err := m.mayBegin(sc, ref.Agent, what); err != nil {
			return err
		}
	}
	if m.shipper == nil || what == server.BeginResume {
		return nil
	}
	return m.claims().mayBeBorn(ctx, sc, ref, what)
}

// mayBegin refuses what must not begin while another host may own this host's runs. These
// are steps and operations of agents whose runs move to other hosts by themselves,
// resumptions of agents that stop without a lease, and operations of agents that need the
// engine's confirmation. All other agents go on.
func (m *Member) mayBegin(sc ckpt.Scope, agent string, what server.Beginning) error {
	if m.lease().Held() {
		return nil
	}
	refusal := m.withoutLease(sc, agent, what)
	if refusal == nil || m.askedLease().Held() {
		return nil
	}
	return refusal
}

// withoutLease returns why something must not begin while this host does not hold its
// lease, nil if it may.
func (m *Member) withoutLease(sc ckpt.Scope, agent string, what server.Beginning) error {
	p, err := m.store.FleetPolicyOf(sc.Whose(), agent)
	switch {
	case err != nil:
		return ckpt.Wrap(ckpt.CodeBusy, err, "%s%s, and its policy cannot be read: nothing may begin", leaseIsOver, agent)
	case p.OnLeaseLost == ckpt.LeaseLostStop && what == server.BeginResume: // exec would stop the agent at once, again and again
		return m.leaseOver(ckpt.CodeBusy, agent, "resume it")
	case p.Takeover == ckpt.TakeoverAuto:
		return m.leaseOver(ckpt.CodeFenced, agent, "stop this process, and resume the run")
	case what == server.BeginOperation && p.Durability == ckpt.DurabilityFleet && p.OnOutage == ckpt.OutageRefuse:
		return m.leaseOver(ckpt.CodeNotReplicated, agent, "no operation may begin; try again")
	}
	return nil
}

const leaseIsOver = "this host's lease in the fleet is over, so another host may own the runs of "

// leaseOver refuses something for an agent, and says what to do and when. Waiting helps only if this host can get its
// lease back.
func (m *Member) leaseOver(code ckpt.Code, agent, do string) error {
	when := "when `ckptsidecar fleet status` says held"
	switch why := m.shipper.hindered(); {
	case why != nil:
		when = "once an administrator has done what `ckptsidecar fleet status` says"
	}
	e := ckpt.Errorf(code, "%s%s: %s %s", leaseIsOver, agent, do, when)
	if e.Retryable() {
		e.RetryAfter = time.Second
	}
	return e
}

// TellLease adds the state of the lease to the answer about a run. If the policy
// cannot be read, the agent must stop. While nobody knows the state yet, agents that go on
// without a lease are told nothing.
func (m *Member) TellLease(sc ckpt.Scope, run *ckpt.Run) {
	l := m.lease()
	if l == nil {
		return
	}
	run.OnLeaseLost = ckpt.LeaseLostStop
	if p, err := m.store.FleetPolicyOf(sc.Whose(), run.Agent); err == nil {
		run.OnLeaseLost = p.OnLeaseLost
	}
	switch {
	case run.OnLeaseLost == ckpt.LeaseLostStop:
		l = m.askedLease()
	case l.Unknown() && !m.shipper.keeper.hasAsked():
		return
	}
	run.Lease, run.LeaseLeftMS = ckpt.LeaseHeld, l.Left().Milliseconds()
	if run.LeaseLeftMS == 0 {
		run.Lease = ckpt.LeaseLost
	}
}

// Began waits until the engine knows that this host works on a run, if the run has a name
// of its own in the whole fleet. Before the engine knows, another host may begin a run of
// this name, or claim a run that had ended.
func (m *Member) Began(ctx context.Context, sc ckpt.Scope, agent, run string) error {
	if m.lease() == nil {
		return nil
	}
	if p, err := m.store.FleetPolicyOf(sc.Whose(), agent); err == nil && !journal.TakesNames(p) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, m.writeTimeout)
	defer cancel()
	if err := m.shipper.shippedTo(ctx, m.store.Committed()); err != nil {
		return &ckpt.Error{Code: ckpt.CodeNotReplicated, Outcome: ckpt.OutcomeUnknown, RetryAfter: time.Second, Err: err,
			Message: "the engine of the fleet has not confirmed in time that this host works on the run: try again"}
	}
	return m.shipper.waiters.owned(fleet.RunName(sc.Whose(), agent, runOr(run)))
}
