package daemon

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ckptsidecar/ckptsidecar/internal/ipc/endpoint"
	"github.com/ckptsidecar/ckptsidecar/internal/periodic"
)

// statusEvery is how often the manager gets the daemon's status, unless its watchdog needs it more often.
const statusEvery = 15 * time.Second

// errStuck ends a daemon whose writer has committed nothing for too long.
var errStuck = errors.New("the writer is stuck: it has had work and committed nothing for longer than limits.stuck_after")

// watch tells the manager that the daemon is alive as long as its writer makes progress. One slow flush is no reason to
// end the daemon. A writer that stands still is a reason, and so is a writer that tries for limits.stuck_after and
// commits nothing.
func (s *service) watch(ctx context.Context) error {
	err := s.watchWriter(ctx, s.store.Stalled, s.store.Behind, s.statusLine)
	if errors.Is(err, errStuck) {
		s.store.GiveUp(s.store.Behind())
		err = fmt.Errorf("%w: %w", err, s.store.Fault())
	}
	return err
}

func (s *service) watchWriter(ctx context.Context, stalledFor, behindFor func() time.Duration, line func(time.Duration) string) error {
	m := s.manager
	every, timeout, limit := s.watchPace()
	tick := time.NewTicker(every)
	defer tick.Stop()
	for last := time.Now(); ; last = time.Now() {
		stalled, behind := stalledFor(), behindFor()
		if behind > every {
			s.log.Warn("the writer makes no progress", "for", behind.Round(time.Second), "limit", limit)
		}
		if limit > 0 && behind >= limit {
			return errStuck
		}
		if timeout == 0 || stalled < timeout {
			m.Alive()
		}
		m.Status(line(stalled))
		if !s.pause(ctx, tick.C, last, every) {
			return nil
		}
	}
}

// pause waits for the next tick. If this process itself did not run for a while, it waits for one more: after a
// SIGSTOP, the writer must have a chance to make progress. It returns false if ctx has ended.
func (s *service) pause(ctx context.Context, tick <-chan time.Time, last time.Time, every time.Duration) bool {
	for {
		select {
		case <-ctx.Done():
			return false
		case <-tick:
		}
		if time.Since(last) < 2*every+time.Second {
			return true
		}
		last = time.Now()
	}
}

// reachEvery is how often the daemon checks whether callers can still find the socket.
const reachEvery = 500 * time.Millisecond

// watchSocket returns an error when callers can no longer find the socket, because the socket or its folder was removed
// or replaced. A restarted daemon creates a new one.
func (s *service) watchSocket(ctx context.Context) error {
	return periodic.Every(ctx, reachEvery, func(context.Context) error { return endpoint.Reachable(s.listener) })
}

// watchPace returns how often to look at the writer, how long the writer may stand still before the daemon stops
// reporting to the manager (0: forever), and how long it may commit nothing before the daemon ends itself (0: forever).
func (s *service) watchPace() (every, timeout, limit time.Duration) {
	every, timeout, limit = statusEvery, s.manager.WatchdogTimeout(), time.Duration(s.daemon.Config.StuckAfter)
	if timeout > 0 {
		every = min(every, timeout/4)
	}
	if limit > 0 {
		every = min(every, limit/4)
	}
	return every, timeout / 2, limit
}

// statusLine returns the line that `systemctl status` shows.
func (s *service) statusLine(stalled time.Duration) string {
	state, problems := s.store.Health()
	switch {
	case len(problems) > 0:
		return state + ": " + problems[0]
	case stalled > time.Second:
		return fmt.Sprintf("the disk is slow: a write has taken %v so far", stalled.Round(time.Second))
	}
	return "serving at " + s.endpoint
}
