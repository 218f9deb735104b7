package server

import (
	"context"
	"net/http"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

func (c *call) getDrift() error {
	f := ckpt.DriftFilter{Agent: c.agent, Before: c.query.get("before")}
	var err error
	if f.Run, err = c.query.run(); err != nil {
		return err
	}
	if f.All, err = c.query.is("all", false); err != nil {
		return err
	}
	if f.Line, err = c.query.is("timeline", false); err != nil {
		return err
	}
	if f.Limit, err = c.query.limit(); err != nil {
		return err
	}
	return read(c, true, func(ctx context.Context) (*ckpt.DriftReport, error) {
		return c.server.store.Drift.Drift(ctx, c.scope, f)
	})
}

// evaluateDrift only reads. It is a POST because its question is too long for a query.
func (c *call) evaluateDrift() error {
	var r ckpt.EvaluateRequest
	if err := c.decodeOptional(maxSmallBody, &r); err != nil {
		return err
	}
	ctx, cancel := c.reading(c.server.limits.LongTimeout)
	defer cancel()
	result, err := c.server.store.Drift.Evaluate(ctx, c.scope, r)
	if err != nil {
		return err
	}
	return c.sendJSON(http.StatusOK, result)
}

func (c *call) driftFeedback() error {
	ctx, cancel := c.reading(c.server.limits.LongTimeout)
	defer cancel()
	result, err := c.server.store.Drift.Feedback(ctx, c.scope, c.agent)
	if err != nil {
		return err
	}
	return c.sendJSON(http.StatusOK, result)
}

func (c *call) getFinding() error {
	return read(c, false, func(ctx context.Context) (*ckpt.Finding, error) {
		return c.server.store.Drift.Finding(ctx, c.scope, c.r.PathValue("id"))
	})
}

func (c *call) postFinding() error {
	r := ckpt.FindingRequest{IdempotencyKey: c.key}
	if err := c.decode(&r); err != nil {
		return err
	}
	r.Evidence = given(r.Evidence)
	return write(c, http.StatusCreated, func(ctx context.Context) (*ckpt.PostedFinding, bool, error) {
		return c.server.store.Drift.PostFinding(ctx, c.scope, c.agent, r)
	})
}

func (c *call) dismissFinding() error {
	r := ckpt.DismissRequest{ID: c.r.PathValue("id"), IdempotencyKey: c.key}
	if err := c.decodeOptional(maxSmallBody, &r); err != nil {
		return err
	}
	return write(c, http.StatusOK, func(ctx context.Context) (*ckpt.DismissedFinding, bool, error) {
		return c.server.store.Drift.Dismiss(ctx, c.scope, r)
	})
}
