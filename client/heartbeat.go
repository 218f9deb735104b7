package client

import (
	"context"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/ipc/client"
)

// heartbeat reports that the owner of a run is alive, and the progress of the run.
type heartbeat struct {
	wire     *client.Client
	run      ckpt.RunRef
	most     time.Duration // the longest time that one heartbeat may take
	progress func() *float64
	told     func(error) // gets the result of each heartbeat
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
