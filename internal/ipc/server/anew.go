package server

import (
	ckpt "github.com/ckptsidecar/ckptsidecar"
)

// beginAnew begins a run anew for a write that a client has spooled after the run had ended. Its agent has begun the run
// anew without a daemon. A writer that names an epoch has claimed the run while there was one.
func (c *call) beginAnew(ref ckpt.RunRef, epoch *int64) error {
	if c.scope.Spooled.IsZero() || epoch != nil {
		return nil
	}
	ctx, cancel := c.writing(c.server.limits.WriteTimeout)
	defer cancel()
	run, err := c.server.store.Runs.Run(ctx, c.scope, ref)
	if err != nil || run.EndedAt.IsZero() || !c.scope.Spooled.After(run.EndedAt.Time) {
		return nil // the write itself says what is wrong
	}
	_, _, err = c.server.store.Runs.StartRun(ctx, c.scope, ckpt.RunRequest{Agent: ref.Agent, Run: ref.Run})
	return err
}
