package daemon

import (
	"context"
	"log/slog"
	"time"
)

// Daemon is the service as one value. Config must have been checked; the other
// fields may be left zero.
type Daemon struct {
	Config  Config
	Version string
	Log     *slog.Logger
	Now     func() time.Time // the wall clock; nil means the system's
	Hurry   <-chan struct{}  // closed when a stop shall wait for nobody any more
}

// Run serves until ctx ends, which is a clean stop and nil, or until the store
// can vouch for nothing any more. Its errors are *EndError.
func (d *Daemon) Run(ctx context.Context) error {
	if d.Log == nil {
		d.Log = slog.New(slog.DiscardHandler)
	}
	if d.Now == nil {
		d.Now = time.Now
	}
	s := &service{daemon: d, log: d.Log}
	if err := s.start(ctx); err != nil {
		s.abandon()
		if ctx.Err() != nil { // asked to stop before it was ready
			return nil
		}
		return endOfStart(err)
	}
	d.Log.Info("ready", "version", d.Version, "endpoint", d.Config.Socket, "database", d.Config.Database)
	tellManager("READY=1")
	cause := s.wait(ctx)
	tellManager("STOPPING=1")
	return s.stop(cause)
}
