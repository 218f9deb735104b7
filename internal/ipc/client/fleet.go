package client

import (
	"context"
	"net/http"
	"net/url"
	"strconv"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/fleet"
	"github.com/ckptsidecar/ckptsidecar/internal/survey"
)

// ClaimRun makes this host the owner of a run of another host, and moves the run here. For
// administrators.
func (o Operator) ClaimRun(ctx context.Context, r fleet.ClaimRequest) (*fleet.Claimed, error) {
	a, err := jsonAsk(http.MethodPost, "/v1/fleet/claim", r)
	if err != nil {
		return nil, err
	}
	a.because(ctx)
	v := new(fleet.Claimed)
	_, err = o.fetch(ctx, a, v)
	return orNil(v, err)
}

// Strands lists what this host has of runs that other hosts have claimed. For
// administrators.
func (o Operator) Strands(ctx context.Context) (*fleet.Strands, error) {
	v := new(fleet.Strands)
	_, err := o.fetch(ctx, &ask{method: http.MethodGet, path: "/v1/fleet/strands", repeatable: true}, v)
	return orNil(v, err)
}

// DecideStrand adopts or drops the strand of the run with this uid. For administrators.
func (o Operator) DecideStrand(ctx context.Context, uid string, d fleet.StrandDecision) (*fleet.StrandDecided, error) {
	verb := "/adopt"
	if d.Decision == fleet.Dropped {
		verb = "/drop"
	}
	a, err := jsonAsk(http.MethodPost, "/v1/fleet/strands/"+url.PathEscape(uid)+verb, d)
	if err != nil {
		return nil, err
	}
	a.because(ctx)
	v := new(fleet.StrandDecided)
	_, err = o.fetch(ctx, a, v)
	return orNil(v, err)
}

// ReleaseRun allows another host to claim a run of this host at once.
func (o Operator) ReleaseRun(ctx context.Context, ref ckpt.RunRef) (*fleet.Released, error) {
	path, err := runPath(ref, "release")
	if err != nil {
		return nil, err
	}
	v := new(fleet.Released)
	_, err = o.fetch(ctx, &ask{method: http.MethodPost, path: path, repeatable: true}, v)
	return orNil(v, err)
}

// Drain releases all runs of this host, or takes them back. For administrators.
func (o Operator) Drain(ctx context.Context, r fleet.DrainRequest) (*fleet.Drained, error) {
	a, err := jsonAsk(http.MethodPost, "/v1/fleet/drain", r)
	if err != nil {
		return nil, err
	}
	v := new(fleet.Drained)
	_, err = o.fetch(ctx, a, v)
	return orNil(v, err)
}

// Erasure asks the engine which hosts have confirmed an erasure of this host. N is the one
// in the answer to the erasure.
func (o Operator) Erasure(ctx context.Context, n int64) (*ckpt.ErasedFleet, error) {
	v := new(ckpt.ErasedFleet)
	_, err := o.fetch(ctx, &ask{method: http.MethodGet, path: "/v1/fleet/erasures/" + strconv.FormatInt(n, 10), repeatable: true}, v)
	return orNil(v, err)
}

// FleetPrompts lists one page of the open prompts of all hosts that the caller may see. It
// uses the filter's Host, Principal, Agent, Before and Limit.
func (o Operator) FleetPrompts(ctx context.Context, f fleet.RunsQuery) (*survey.FleetPrompts, error) {
	var q values
	q.add("host", f.Host)
	q.add("principal", f.Principal)
	q.add("agent", f.Agent)
	q.add("before", f.Before)
	q.addLimit(f.Limit)
	v := new(survey.FleetPrompts)
	_, err := o.fetch(ctx, &ask{method: http.MethodGet, path: "/v1/fleet/prompts", query: q, repeatable: true}, v)
	return orNil(v, err)
}

// FleetCheckpoint reads a checkpoint of any host of the fleet, by its id.
func (o Operator) FleetCheckpoint(ctx context.Context, id string, state bool) (*ckpt.Checkpoint, error) {
	if err := ckpt.CheckID(id); err != nil {
		return nil, err
	}
	return o.fetchCheckpoint(ctx, &ask{method: http.MethodGet, path: "/v1/fleet/checkpoints/" + id, query: stateQuery(nil, state), repeatable: true})
}

// FleetDiff compares two checkpoints of any hosts of the fleet.
func (o Operator) FleetDiff(ctx context.Context, from, to string) (*ckpt.Diff, error) {
	return o.diff(ctx, "/v1/fleet/checkpoints/", from, to)
}
