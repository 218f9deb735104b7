package server

import (
	"context"
	"net/http"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/fleet"
)

// Fleet is what the server needs from the engine that the hosts share. FleetRuns, Claim, Bring, BringThread and Release are for all users. All other calls are for administrators; the
// implementation refuses other callers.
type Fleet interface {
	// FleetStatus returns the status of shipping. It does not ask the engine.
	FleetStatus(ctx context.Context, sc ckpt.Scope) (*fleet.Status, error)
	FleetHosts(ctx context.Context, sc ckpt.Scope) (*fleet.Hosts, error)
	// FleetRuns lists the runs that the scope may see.
	FleetRuns(ctx context.Context, sc ckpt.Scope, q fleet.RunsQuery) (*fleet.Runs, error)
	// Claim makes this host the owner of a run of another host, and moves the run here.
	Claim(ctx context.Context, sc ckpt.Scope, r fleet.ClaimRequest) (*fleet.Claimed, error)
	// Erased returns which hosts have not erased an agent yet that this host has just erased. It does not ask the
	// engine. It is nil if there is no fleet.
	Erased() *ckpt.ErasedFleet
	// Bring moves the run of a resume request to this host, if another host has it and it can move without a
	// person.
	Bring(ctx context.Context, sc ckpt.Scope, r *ckpt.ResumeRequest) error
	// BringThread moves the run of a thread of LangGraph to this host before a graph reads it, as Bring does. A
	// graph asks no person before it goes on. So it refuses a run that a person would have to decide about.
	BringThread(ctx context.Context, sc ckpt.Scope, ref ckpt.RunRef) error
	// Release allows another host to claim a run of this host at once.
	Release(ctx context.Context, sc ckpt.Scope, ref ckpt.RunRef) (*fleet.Released, error)
	// Drain releases all runs of this host, or takes them back.
	Drain(ctx context.Context, sc ckpt.Scope, r fleet.DrainRequest) (*fleet.Drained, error)
}

// noFleet is the Fleet of a host without an engine.
type noFleet struct{}

func (noFleet) refuse(sc ckpt.Scope) error {
	if !sc.Admin {
		return ckpt.Errorf(ckpt.CodeDenied, "only an administrator of this host may ask for the runs of the fleet")
	}
	return ckpt.Errorf(ckpt.CodeConflict, "this daemon belongs to no fleet: set fleet.engine_file, and restart it")
}

// FleetStatus also works without a fleet.
func (n noFleet) FleetStatus(_ context.Context, sc ckpt.Scope) (*fleet.Status, error) {
	if !sc.Admin {
		return nil, n.refuse(sc)
	}
	return &fleet.Status{State: fleet.StateOff, Keys: []string{}, Erasures: []fleet.ErasureShown{}, Strands: []fleet.Strand{}, Noticed: []string{},
		Principals: map[string]string{}, Realms: map[string]string{}}, nil
}

func (n noFleet) FleetHosts(_ context.Context, sc ckpt.Scope) (*fleet.Hosts, error) {
	return nil, n.refuse(sc)
}

func (n noFleet) FleetRuns(_ context.Context, sc ckpt.Scope, _ fleet.RunsQuery) (*fleet.Runs, error) {
	sc.Admin = true // every user may ask about their own runs, and learns that there is no fleet
	return nil, n.refuse(sc)
}

func (n noFleet) Claim(_ context.Context, sc ckpt.Scope, _ fleet.ClaimRequest) (*fleet.Claimed, error) {
	return nil, n.refuse(sc)
}

func (noFleet) Erased() *ckpt.ErasedFleet { return nil }

// Bring does nothing: this host continues the resume. It refuses a standby, which needs a fleet.
func (n noFleet) Bring(_ context.Context, sc ckpt.Scope, r *ckpt.ResumeRequest) error {
	if !r.Standby {
		return nil
	}
	sc.Admin = true // every user may stand by for their own runs
	return n.refuse(sc)
}

// BringThread does nothing: this host continues.
func (noFleet) BringThread(context.Context, ckpt.Scope, ckpt.RunRef) error { return nil }

func (n noFleet) Release(_ context.Context, sc ckpt.Scope, _ ckpt.RunRef) (*fleet.Released, error) {
	sc.Admin = true // every user may release their own runs
	return nil, n.refuse(sc)
}

func (n noFleet) Drain(_ context.Context, sc ckpt.Scope, _ fleet.DrainRequest) (*fleet.Drained, error) {
	return nil, n.refuse(sc)
}

func (c *call) claimRun() error {
	var r fleet.ClaimRequest
	if err := c.decode(&r); err != nil {
		return err
	}
	ctx, cancel := c.writing(c.server.limits.LongTimeout)
	defer cancel()
	done, err := c.server.fleet.Claim(ctx, c.scope, r)
	if err != nil {
		return err
	}
	return c.sendJSON(http.StatusOK, done)
}

func (c *call) releaseRun() error {
	ctx, cancel := c.writing(c.server.limits.LongTimeout)
	defer cancel()
	done, err := c.server.fleet.Release(ctx, c.scope, c.ref())
	if err != nil {
		return err
	}
	return c.sendJSON(http.StatusOK, done)
}

func (c *call) drainHost() error {
	var r fleet.DrainRequest
	if err := c.decodeOptional(maxSmallBody, &r); err != nil {
		return err
	}
	ctx, cancel := c.writing(c.server.limits.LongTimeout)
	defer cancel()
	done, err := c.server.fleet.Drain(ctx, c.scope, r)
	if err != nil {
		return err
	}
	return c.sendJSON(http.StatusOK, done)
}

func (c *call) getFleet() error {
	return read(c, false, func(ctx context.Context) (*fleet.Status, error) { return c.server.fleet.FleetStatus(ctx, c.scope) })
}

func (c *call) listFleetHosts() error {
	return read(c, false, func(ctx context.Context) (*fleet.Hosts, error) { return c.server.fleet.FleetHosts(ctx, c.scope) })
}
