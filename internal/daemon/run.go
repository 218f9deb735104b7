package daemon

import (
	"context"
	"log/slog"
	"time"
)

// The messages by which others know what happened. MessageEnded is for who runs
// a Daemon where nobody sees its error.
const (
	messageReady   = "ready"
	messageStopped = "stopped"
	MessageEnded   = "ended"
)

// Daemon is the service as one value. Config must have been checked; the other
// fields may be left zero.
type Daemon struct {
	Config  Config
	Version string
	Log     *slog.Logger
	Level   *slog.LevelVar   // of Log, for a reload to change; nil where it cannot be
	Now     func() time.Time // the wall clock; nil means the system's
	Hurry   <-chan struct{}  // closed when a stop shall wait for nobody any more
	Manager Manager          // who started it; nil for a person

	// Backup makes a verified copy of the database and gives it a name. nil makes
	// it in this process, which then keeps some of the memory that it takes.
	Backup func(ctx context.Context, database, out string) error

	Reload <-chan struct{}        // each one asks to read the settings anew
	Load   func() (Config, error) // reads them; nil where they cannot be
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
	if d.Manager == nil {
		d.Manager = nobody{}
	}
	s := &service{daemon: d, log: d.Log, manager: d.Manager}
	started := startPatiently(d.Manager)
	err := s.start(ctx)
	started()
	if err != nil {
		return s.failedStart(ctx, err)
	}
	d.Log.Info(messageReady, "version", d.Version, "endpoint", s.endpoint, "database", d.Config.Database)
	d.Manager.Ready()
	cause := s.wait(ctx)
	d.Manager.Stopping(time.Duration(d.Config.StopTimeout) + time.Second)
	return s.stop(cause)
}

// failedStart takes back what was begun. Who waits in the socket is told where
// another start would end the same way.
func (s *service) failedStart(ctx context.Context, err error) error {
	if ctx.Err() != nil { // asked to stop before it was ready
		s.abandon()
		return nil
	}
	end := endOfStart(err)
	if end.ExitCode != ExitFault {
		s.refuseCallers()
	}
	s.abandon()
	return end
}
