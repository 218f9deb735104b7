package client

import (
	"context"
	"net/http"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/fleet"
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
