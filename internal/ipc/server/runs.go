package server

import (
	"context"
	"net/http"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

// ref returns the run that the path names. The epoch is elsewhere: in the body, or for events in the
// query.
func (c *call) ref() ckpt.RunRef {
	return ckpt.RunRef{Agent: c.agent, Run: c.r.PathValue("run")}
}

// write runs do with the context of a write, and answers with its result. A header says whether the result
// is replayed, as for every POST.
func write[T any](c *call, status int, do func(context.Context) (*T, bool, error)) error {
	ctx, cancel := c.writing(c.server.limits.WriteTimeout)
	defer cancel()
	v, replayed, err := do(ctx)
	if err != nil {
		return err
	}
	c.markReplayed(replayed)
	return c.sendJSON(status, v)
}

// writeDurably is write for data that an agent's policy can keep in a fleet. place is the member of the
// answer for the durability.
func writeDurably[T any](c *call, status int, do func(context.Context) (*T, bool, error), place func(*T) *ckpt.Durability) error {
	return write(c, status, func(ctx context.Context) (*T, bool, error) {
		v, replayed, err := do(ctx)
		if err == nil {
			err = c.durable(c.ref().Run, place(v))
		}
		return v, replayed, err
	})
}

// durable waits until the committed data is as safe as the agent's policy requires, and sets *place to how
// safe it is. It releases the shares of the request before it waits, so that other agents of the owner do
// not wait for the engine.
func (c *call) durable(run string, place *ckpt.Durability) (err error) {
	if c.server.durable == nil {
		return nil
	}
	d, wait := c.server.durable(c.scope, c.agent, run)
	*place = d
	if wait == nil {
		return nil
	}
	c.giveBack(&c.conn.owner.requests)
	c.giveBack(&c.conn.owner.bytes)
	ctx, cancel := c.reading(c.server.limits.WriteTimeout)
	defer cancel()
	defer context.AfterFunc(c.server.stopping, cancel)()
	*place, err = wait(ctx)
	return err
}

// read runs do with the context of a read, and answers with its result. If the answer has values of an
// agent, it waits for a share of the memory for them.
func read[T any](c *call, values bool, do func(context.Context) (*T, error)) error {
	if values {
		if err := c.hold(&c.conn.owner.states, 1); err != nil {
			return err
		}
	}
	ctx, cancel := c.reading(c.server.limits.ReadTimeout)
	defer cancel()
	v, err := do(ctx)
	if err != nil {
		return err
	}
	return c.sendJSON(http.StatusOK, v)
}

func (c *call) startRun() error {
	r := ckpt.RunRequest{Agent: c.agent, IdempotencyKey: c.key}
	if err := c.decodeOptional(maxSmallBody, &r); err != nil {
		return err
	}
	if err := c.before(ckpt.RunRef{Agent: r.Agent, Run: r.Run}, r.Epoch, BeginRun); err != nil {
		return err
	}
	return write(c, http.StatusCreated, func(ctx context.Context) (*ckpt.Run, bool, error) {
		run, replayed, err := c.server.store.Runs.StartRun(ctx, c.scope, r)
		if err == nil {
			err = c.awaitOwnership(r.Run)
		}
		return run, replayed, err
	})
}

func (c *call) getRun() error {
	return read(c, false, func(ctx context.Context) (*ckpt.Run, error) {
		run, err := c.server.store.Runs.Run(ctx, c.scope, c.ref())
		if err == nil && c.server.place != nil {
			err = c.server.place(ctx, run)
		}
		if err == nil && c.server.lease != nil {
			c.server.lease(c.scope, run)
		}
		return run, err
	})
}

func (c *call) deleteRun() error {
	force, err := c.query.is("force", false)
	if err != nil {
		return err
	}
	ctx, cancel := c.writing(c.server.limits.LongTimeout)
	defer cancel()
	deleted, err := c.server.store.Runs.DeleteRun(ctx, c.scope, c.ref(), force)
	if err != nil {
		return err
	}
	return c.sendJSON(http.StatusOK, deleted)
}

func (c *call) clearRun() error {
	ctx, cancel := c.writing(c.server.limits.LongTimeout)
	defer cancel()
	cleared, err := c.server.store.Runs.ClearRun(ctx, c.scope, c.ref())
	if err != nil {
		return err
	}
	return c.sendJSON(http.StatusOK, cleared)
}

// listRuns lists the runs of the agent in the path or in the query, or of all agents.
func (c *call) listRuns() error {
	f := ckpt.RunFilter{
		Agent: c.agent, Status: ckpt.RunStatus(c.query.get("status")), Workflow: c.query.get("workflow"), Goal: c.query.get("goal"),
		Severity: ckpt.Severity(c.query.get("severity")), Sort: ckpt.RunSort(c.query.get("sort")), Before: c.query.get("before"),
	}
	if name := c.query.get("agent"); name != "" {
		if err := ckpt.CheckAgentName(name); err != nil {
			return err
		}
		f.Agent = name
	}
	var err error
	if f.Labels, err = c.query.labels(); err != nil {
		return err
	}
	if f.Since, err = c.query.time("since"); err != nil {
		return err
	}
	if f.Until, err = c.query.time("until"); err != nil {
		return err
	}
	if f.Lives, err = c.query.is("lives", false); err != nil {
		return err
	}
	if f.Limit, err = c.query.limit(); err != nil {
		return err
	}
	return read(c, true, func(ctx context.Context) (*ckpt.RunPage, error) {
		return c.server.store.Runs.Runs(ctx, c.scope, f)
	})
}

// awaitOwnership waits until this host may work on a run that was started or resumed. It releases the
// shares of the request before it waits.
func (c *call) awaitOwnership(run string) error {
	if c.server.began == nil {
		return nil
	}
	c.giveBack(&c.conn.owner.requests)
	c.giveBack(&c.conn.owner.bytes)
	ctx, cancel := c.reading(c.server.limits.WriteTimeout)
	defer cancel()
	defer context.AfterFunc(c.server.stopping, cancel)()
	return c.server.began(ctx, c.scope, c.agent, run)
}

// before returns an error if this kind of work may not begin now. A write that names an epoch begins no run.
func (c *call) before(ref ckpt.RunRef, epoch *int64, what Beginning) error {
	if c.server.before == nil || epoch != nil && what == BeginSave {
		return nil
	}
	ctx, cancel := c.writing(c.server.limits.WriteTimeout)
	defer cancel()
	return c.server.before(ctx, c.scope, ref, what)
}

func (c *call) beat() error {
	var b ckpt.Heartbeat
	if err := c.decodeOptional(maxSmallBody, &b); err != nil {
		return err
	}
	return write(c, http.StatusOK, func(ctx context.Context) (*ckpt.Run, bool, error) {
		run, err := c.server.store.Runs.Beat(ctx, c.scope, c.ref(), b)
		if err == nil && c.server.lease != nil {
			c.server.lease(c.scope, run)
		}
		return run, false, err
	})
}

func (c *call) endRun() error {
	r := ckpt.EndRequest{IdempotencyKey: c.key}
	if err := c.decodeUpTo(c.server.limits.maxRunEnd(), &r); err != nil {
		return err
	}
	if err := c.takeState(&r.State); err != nil {
		return err
	}
	r.Result = given(r.Result)
	if err := c.beginAnew(c.ref(), r.Epoch); err != nil {
		return err
	}
	return write(c, http.StatusOK, func(ctx context.Context) (*ckpt.Run, bool, error) {
		return c.server.store.Runs.EndRun(ctx, c.scope, c.ref(), r)
	})
}

func (c *call) resume() error {
	ref := c.ref()
	r := ckpt.ResumeRequest{Agent: ref.Agent, Run: ref.Run, IdempotencyKey: c.key}
	if err := c.decodeOptional(maxSmallBody, &r); err != nil {
		return err
	}
	if err := c.hold(&c.conn.owner.states, 1); err != nil {
		return err
	}
	if !r.DryRun {
		if err := c.before(ref, nil, BeginResume); err != nil {
			return err
		}
	}
	if err := c.bring(&r); err != nil {
		return err
	}
	ctx, cancel := c.writing(c.server.limits.WriteTimeout)
	defer cancel()
	plan, replayed, err := c.server.store.Runs.Resume(ctx, c.scope, r)
	if err != nil {
		return err
	}
	if plan.Claimed {
		if err := c.awaitOwnership(r.Run); err != nil {
			return err
		}
	}
	c.markReplayed(replayed)
	return c.sendPlan(plan)
}

// bring lets the fleet move the run to this host, if another host has it.
func (c *call) bring(r *ckpt.ResumeRequest) error {
	ctx, cancel := c.writing(c.server.limits.LongTimeout)
	defer cancel()
	return c.server.fleet.Bring(ctx, c.scope, r)
}

// given returns an optional JSON value. null counts as absent, because many languages write null for an
// absent value.
func given(value ckpt.JSON) ckpt.JSON {
	if string(value) == "null" {
		return nil
	}
	return value
}

// takeState checks the size of an optional state.
func (c *call) takeState(state *ckpt.JSON) error {
	if most := c.server.limits.MaxBody; int64(len(*state)) > most {
		return ckpt.Errorf(ckpt.CodeTooLarge, "the state is larger than the %d bytes that are allowed", most)
	}
	*state = given(*state)
	return nil
}
