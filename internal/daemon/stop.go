package daemon

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// afterFault is how long the daemon waits for requests that came before a fail-stop:
// their answers need no disk.
const afterFault = time.Second

// stop ends everything in order: listener, requests in progress, workers, readers and
// writer. It does not wait beyond the limit. Every acknowledged write is on disk in any
// case.
func (s *service) stop(cause error) error {
	limit := time.Duration(s.daemon.Config.StopTimeout)
	if cause != nil {
		limit = min(limit, afterFault)
	}
	ctx, cancel := s.bounded(limit)
	defer cancel()
	began := time.Now()
	errs := []error{s.stopServing(ctx), s.stopWorkers(ctx), s.closeStore(ctx)}
	if cause != nil {
		return &EndError{ExitFault, cause}
	}
	if err := errors.Join(errs...); err != nil {
		s.log.Warn("stopped before all requests were answered", "error", err, "took", time.Since(began))
		return nil
	}
	s.log.Info(messageStopped, "took", time.Since(began).Round(time.Millisecond))
	return nil
}

// bounded returns a context that ends after a time, or when Hurry is closed.
func (s *service) bounded(limit time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	go func() {
		select {
		case <-s.daemon.Hurry:
			s.log.Warn("asked a second time to stop: not waiting for requests")
			cancel()
		case <-ctx.Done():
		}
	}()
	return ctx, cancel
}

// stopServing closes the endpoint and waits for the requests in progress.
func (s *service) stopServing(ctx context.Context) error {
	s.closeScrapes()
	if err := errors.Join(s.server.Shutdown(ctx), s.stopReceiver(ctx)); err != nil {
		return fmt.Errorf("some requests were still in flight: %w", err)
	}
	return nil
}

func (s *service) stopWorkers(ctx context.Context) error {
	s.endPaced()
	s.endUpkeep()
	return waitFor(ctx, "the workers", func() error { s.paced.Wait(); s.workers.Wait(); return nil })
}

func (s *service) closeStore(ctx context.Context) error {
	return waitFor(ctx, "the database", s.store.Close)
}

// waitFor waits until end returns, unless ctx ends first.
func waitFor(ctx context.Context, what string, end func() error) error {
	done := make(chan error, 1)
	go func() { done <- end() }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}
	// The part that was asked to end may have just ended.
	select {
	case err := <-done:
		return err
	case <-time.After(200 * time.Millisecond):
		return fmt.Errorf("%s did not end in time", what)
	}
}

// abandon undoes what a failed start has done.
func (s *service) abandon() {
	if s.endUpkeep != nil {
		s.endUpkeep()
		s.endPaced()
		s.workers.Wait()
		s.paced.Wait()
	}
	s.closeReceiver()
	s.closeScrapes()
	switch {
	case s.listener != nil:
		_ = s.listener.Close()
	case s.inherited != nil:
		_ = s.inherited.Close()
	}
	if s.store != nil {
		_ = s.store.Close()
	}
}
