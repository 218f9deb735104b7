package server

import (
	"context"
	"errors"
	"net/http"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/ipc"
)

func (c *call) beginStep() error {
	r := ckpt.StepRequest{IdempotencyKey: c.key}
	if err := c.decodeStep(maxValues, &r, false); err != nil {
		return err
	}
	r.Args, r.Result = given(r.Args), given(r.Result)
	what := BeginStep
	if r.Status != "" && r.Status != ckpt.StepStarted { // a step that has ended is only recorded
		what = BeginSave
	}
	if err := c.before(c.ref(), r.Epoch, what); err != nil {
		return err
	}
	if err := c.beginAnew(c.ref(), r.Epoch); err != nil {
		return err
	}
	return writeDurably(c, http.StatusCreated, func(ctx context.Context) (*ckpt.Step, bool, error) {
		return c.server.store.Steps.BeginStep(ctx, c.scope, c.ref(), r)
	}, func(s *ckpt.Step) *ckpt.Durability { return &s.Durability })
}

func (c *call) finishStep() error {
	var end ipc.StepEnd
	if err := c.decodeStep(maxValueBody, &end, true); err != nil {
		return err
	}
	r := ckpt.StepRequest{
		Key: c.pathKey(), Epoch: end.Epoch, Status: end.Status, Result: given(end.Result), Error: end.Error, Turn: end.Turn, Outcome: end.Outcome,
		DurationMS: end.DurationMS, InputTokens: end.InputTokens, OutputTokens: end.OutputTokens, CostUSD: end.CostUSD, Progress: end.Progress,
		IdempotencyKey: c.key,
	}
	return writeDurably(c, http.StatusOK, func(ctx context.Context) (*ckpt.Step, bool, error) {
		return c.server.store.Steps.FinishStep(ctx, c.scope, c.ref(), r)
	}, func(s *ckpt.Step) *ckpt.Durability { return &s.Durability })
}

// decodeStep reads a step, whose members can have OpenTelemetry names. For the end of a
// step, no body means {}.
func (c *call) decodeStep(limit int64, v any, finish bool) error {
	body, err := c.readBody(limit, 2)
	if err != nil || finish && len(body) == 0 {
		return err
	}
	if body, err = stepFromTelemetry(body, finish); err != nil {
		return ckpt.Errorf(ckpt.CodeInvalid, "the body is wrong: %s", reason(err))
	}
	return decodeBody(body, v)
}

// reason returns an error's message without its code.
func reason(err error) string {
	var e *ckpt.Error
	if errors.As(err, &e) {
		return e.Message
	}
	return err.Error()
}

func (c *call) listSteps() error {
	f, err := c.partFilter()
	if err != nil {
		return err
	}
	return read(c, true, func(ctx context.Context) (*ckpt.StepPage, error) {
		return c.server.store.Steps.Steps(ctx, c.scope, c.ref(), f)
	})
}

// partFilter reads the parameters that all lists below a run have in common.
func (c *call) partFilter() (f ckpt.ListFilter, err error) {
	f.Status, f.Before = c.query.get("status"), c.query.get("before")
	f.Limit, err = c.query.limit()
	return f, err
}
