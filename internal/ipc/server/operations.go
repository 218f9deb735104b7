package server

import (
	"context"
	"net/http"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

func (c *call) beginOperation() error {
	r := ckpt.OperationRequest{IdempotencyKey: c.key}
	if err := c.decodeUpTo(c.server.limits.maxEnvelope(), &r); err != nil {
		return err
	}
	if err := c.takeState(&r.State); err != nil {
		return err
	}
	if err := c.before(c.ref(), r.Epoch, BeginOperation); err != nil {
		return err
	}
	if err := c.beginAnew(c.ref(), r.Epoch); err != nil {
		return err
	}
	return writeDurably(c, http.StatusCreated, func(ctx context.Context) (*ckpt.Operation, bool, error) {
		return c.server.store.Operations.BeginOperation(ctx, c.scope, c.ref(), r)
	}, func(o *ckpt.Operation) *ckpt.Durability { return &o.Durability })
}

func (c *call) succeedOperation() error { return c.endOperation(ckpt.OperationSucceeded) }
func (c *call) failOperation() error    { return c.endOperation(ckpt.OperationFailed) }
func (c *call) doubtOperation() error   { return c.endOperation(ckpt.OperationUncertain) }

// endOperation ends an operation with the status in the path.
func (c *call) endOperation(status ckpt.OperationStatus) error {
	r := ckpt.OperationEnd{Key: c.pathKey(), IdempotencyKey: c.key}
	if err := c.decodeOptional(maxValueBody, &r); err != nil {
		return err
	}
	if r.Status != "" && r.Status != status {
		return ckpt.Errorf(ckpt.CodeInvalid, "the path says that the operation is %s, but the body does not: leave status out", status)
	}
	r.Status, r.Result = status, given(r.Result)
	return c.answerEnded(func(ctx context.Context) (*ckpt.OperationEnded, bool, error) {
		return c.server.store.Operations.EndOperation(ctx, c.scope, c.ref(), r)
	})
}

// resolveOperation records what a person, or the check of the agent's code, says about an uncertain operation.
func (c *call) resolveOperation() error {
	r := ckpt.OperationResolution{Key: c.pathKey(), IdempotencyKey: c.key}
	if err := c.decodeUpTo(maxValueBody, &r); err != nil {
		return err
	}
	r.Result = given(r.Result)
	return c.answerEnded(func(ctx context.Context) (*ckpt.OperationEnded, bool, error) {
		return c.server.store.Operations.ResolveOperation(ctx, c.scope, c.ref(), r)
	})
}

func (c *call) answerEnded(do func(context.Context) (*ckpt.OperationEnded, bool, error)) error {
	if err := c.hold(&c.conn.owner.states, 1); err != nil { // after a failure the answer has a state
		return err
	}
	ctx, cancel := c.writing(c.server.limits.WriteTimeout)
	defer cancel()
	ended, replayed, err := do(ctx)
	if err != nil {
		return err
	}
	if ended.Restore == nil {
		c.giveBack(&c.conn.owner.states)
	}
	if err := c.durable(c.ref().Run, &ended.Durability); err != nil {
		return err
	}
	c.markReplayed(replayed)
	return c.sendEnded(ended)
}

func (c *call) listOperations() error {
	f, err := c.partFilter()
	if err != nil {
		return err
	}
	return read(c, true, func(ctx context.Context) (*ckpt.OperationPage, error) {
		return c.server.store.Operations.Operations(ctx, c.scope, c.ref(), f)
	})
}
