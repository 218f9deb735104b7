package client

import (
	"context"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/ipc/client"
)

// heartbeat tells that the owner of a run is alive, and how far the run has come.
type heartbeat struct {
	wire     *client.Client
	run      ckpt.RunRef
	most     time.Duration // how long one may take
	progress func() *float64
	told     func(error) // is told of each how it went
	drift    func(*ckpt.DriftVerdict)
}

func (h *heartbeat) beat(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, h.most)
	defer cancel()
	run, err := h.wire.Beat(ctx, h.run, ckpt.Heartbeat{Progress: h.progress()})
	h.told(err)
	if run != nil {
		h.drift(run.Drift)
	}
}
