package daemon

import (
	"context"
	"errors"
	"log/slog"
	"time"
)

// Run serves until ctx ends, or until the store is no longer certain what is on disk. If ctx ends,
// the stop is clean and Run returns nil. Its errors are *EndError.
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

// failedStart undoes what the start has done. If another start would fail in the same way, it tells
// the clients that wait in the socket.
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

// wait returns the reason why the daemon ends: nil if it was asked to stop.
func (s *service) wait(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			s.log.Info("stopping: requests in flight are answered first")
			return nil
		case <-s.daemon.Reload:
			s.reload()
		case <-s.store.Failed():
			return s.store.Fault() // the upkeep may be waiting for the writer
		case err := <-s.upkeep:
			return err
		case err := <-s.stuck:
			return err
		case err := <-s.serving:
			s.serving <- err
			return errors.Join(errors.New("serving stopped unexpectedly"), err)
		}
	}
}
