package client

import (
	"cmp"
	"context"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

// Lost says why this process no longer owns the run. It is nil while the process
// owns it.
func (r *Run) Lost() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.lost
}

// noteLost remembers that another owner has come.
func (r *Run) noteLost(err error) {
	if ckpt.CodeOf(err) != ckpt.CodeFenced {
		return
	}
	r.mu.Lock()
	first := r.lost == nil
	if first {
		r.lost = err
	}
	tell := r.onLost
	r.mu.Unlock()
	if first {
		for _, f := range tell {
			f(err)
		}
	}
}

// beat beats until the run ends.
func (r *Run) beat() {
	ctx, cancel := context.WithCancel(context.Background())
	r.stop = cancel
	if r.epoch == nil {
		return
	}
	r.done.Go(func() {
		tick := time.NewTicker(cmp.Or(r.options.Heartbeat, DefaultHeartbeat))
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			r.mu.Lock()
			progress := r.progress
			r.mu.Unlock()
			once, cancel := context.WithTimeout(ctx, cmp.Or(r.options.Heartbeat, DefaultHeartbeat))
			_, err := r.Agent.client.wire.Beat(once, r.ref(), ckpt.Heartbeat{Progress: progress})
			cancel()
			r.noteLost(err)
		}
	})
}

// The defaults of a run.
const (
	DefaultHeartbeat        = 10 * time.Second
	DefaultHeartbeatTimeout = 30 * time.Second
	endMost                 = 10 * time.Second // how long the end of a run may take after its context is gone
)
