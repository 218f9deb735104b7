package daemon

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ckptsidecar/ckptsidecar/internal/ipc/endpoint"
)

// statusEvery is how often a manager hears how the daemon is doing, where its
// watchdog does not want to hear more often.
const statusEvery = 15 * time.Second

// errStuck ends a daemon whose writer has stood still for too long. What is on
// disk then is for a fresh process to say.
var errStuck = errors.New("the writer is stuck: it has had work and not got on with it for longer than limits.stuck_after")

// watch tells the manager that the daemon is alive for as long as its writer
// gets on. One slow flush is no reason to end it, a writer that stands still
// is. Where no manager waits for that, watch answers errStuck itself.
func (s *service) watch(ctx context.Context) error {
	return s.watchWriter(ctx, s.store.Stalled, s.statusLine)
}

func (s *service) watchWriter(ctx context.Context, stalledFor func() time.Duration, line func(time.Duration) string) error {
	m := s.manager
	every, limit := s.watchPace()
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		stalled := stalledFor()
		if stalled > every {
			s.log.Warn("the writer stands still", "for", stalled.Round(time.Second), "limit", limit)
		}
		switch {
		case limit == 0 || stalled < limit:
			m.Alive()
		case m.Patience() == 0:
			return errStuck
		}
		m.Status(line(stalled))
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// reachEvery is how often it is looked whether callers still find the socket.
const reachEvery = 500 * time.Millisecond

// watchSocket answers an error once callers cannot find the socket any more: somebody has removed or replaced it, or its
// folder. A daemon that is started afresh makes another.
func (s *service) watchSocket(ctx context.Context) error {
	tick := time.NewTicker(reachEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			if err := endpoint.Reachable(s.listener); err != nil {
				return err
			}
		}
	}
}

// watchPace is how often the writer is looked at, and for how long it may stand
// still; 0 is for ever.
func (s *service) watchPace() (every, limit time.Duration) {
	patience, limit := s.manager.Patience(), time.Duration(s.daemon.Config.StuckAfter)
	switch {
	case patience > 0:
		return min(statusEvery, patience/4), patience / 2
	case limit > 0:
		return min(statusEvery, limit/4), limit
	}
	return statusEvery, 0
}

// statusLine is what `systemctl status` shows.
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
