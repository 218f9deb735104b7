package server

import (
	"context"
	"net/http"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/fleet"
)

// Fleet is what the server asks of the engine that many hosts share. Every call is for
// administrators; the implementation refuses the others.
type Fleet interface {
	// Claim makes this host the owner of a run of another host, and brings it here.
	Claim(ctx context.Context, sc ckpt.Scope, r fleet.ClaimRequest) (*fleet.Claimed, error)
	// Strands lists what this host has of runs that other hosts have claimed.
	Strands(ctx context.Context, sc ckpt.Scope) (*fleet.Strands, error)
	// Decide adopts or drops the strand of the run with a uid.
	Decide(ctx context.Context, sc ckpt.Scope, uid string, d fleet.StrandDecision) (*fleet.StrandDecided, error)
}

// noFleet answers on a host without an engine.
type noFleet struct{}

func (noFleet) refuse(sc ckpt.Scope) error {
	if !sc.Admin {
		return ckpt.Errorf(ckpt.CodeDenied, "only an administrator of this host may ask for the runs of the fleet")
	}
	return ckpt.Errorf(ckpt.CodeConflict, "this daemon belongs to no fleet: set fleet.engine_file, and restart it")
}

func (n noFleet) Claim(_ context.Context, sc ckpt.Scope, _ fleet.ClaimRequest) (*fleet.Claimed, error) {
	return nil, n.refuse(sc)
}

func (n noFleet) Strands(_ context.Context, sc ckpt.Scope) (*fleet.Strands, error) {
	return nil, n.refuse(sc)
}

func (n noFleet) Decide(_ context.Context, sc ckpt.Scope, _ string, _ fleet.StrandDecision) (*fleet.StrandDecided, error) {
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

func (c *call) listStrands() error {
	ctx, cancel := c.reading(c.server.limits.LongTimeout)
	defer cancel()
	all, err := c.server.fleet.Strands(ctx, c.scope)
	if err != nil {
		return err
	}
	return c.sendJSON(http.StatusOK, all)
}

func (c *call) adoptStrand() error { return c.decideStrand(fleet.Adopted) }

func (c *call) dropStrand() error { return c.decideStrand(fleet.Dropped) }

func (c *call) decideStrand(decision string) error {
	d := fleet.StrandDecision{}
	if err := c.decodeOptional(maxSmallBody, &d); err != nil {
		return err
	}
	d.Decision = decision
	ctx, cancel := c.writing(c.server.limits.LongTimeout)
	defer cancel()
	done, err := c.server.fleet.Decide(ctx, c.scope, c.r.PathValue("id"), d)
	if err != nil {
		return err
	}
	return c.sendJSON(http.StatusOK, done)
}
