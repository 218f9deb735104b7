package host

import (
	"context"
	"fmt"
	"os"
	"slices"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db/journal"
	"github.com/ckptsidecar/ckptsidecar/internal/fleet"
)

// Erased returns which hosts have not erased an agent yet that this host has just erased.
func (v *view) Erased() *ckpt.ErasedFleet {
	e := &ckpt.ErasedFleet{Waiting: []string{}}
	for _, h := range v.shipper.told().others {
		e.Waiting = append(e.Waiting, h.Name)
	}
	return e
}

// noteBack notes that the engine has lost what it had acknowledged.
func (s *shipper) noteBack(had, has int64) {
	s.mu.Lock()
	s.tally.wentBack++
	s.tally.backAt = time.Now()
	s.mu.Unlock()
	if s.inAudit == nil {
		return
	}
	if err := s.inAudit(had, has); err != nil {
		s.log.Error("it could not be noted in the audit log that the fleet's engine went back", "error", err)
	}
}

// learnErasures erases here what other hosts have erased, confirms that to the engine,
// and notes which hosts have not confirmed yet. It asks the engine at most every
// beatEvery.
func (s *shipper) learnErasures(ctx context.Context) error {
	if time.Since(s.learned) < beatEvery {
		return nil
	}
	due, err := s.engine.Erasures(ctx)
	if err != nil {
		return err
	}
	for i := range due {
		if due[i].DB == s.host.DB || !due[i].WaitsFor(s.host.DB) {
			continue
		}
		if err := s.follow(ctx, &due[i]); err != nil {
			return err
		}
	}
	due = slices.DeleteFunc(due, func(x fleet.ErasureShown) bool { return len(x.Waits) == 0 })
	others, err := s.engine.Others(ctx, s.host.DB)
	if err != nil {
		return err
	}
	s.learned = time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tally.erasures, s.tally.others = due, others
	return nil
}

// follow erases this host's copies of an agent that another host has erased.
func (s *shipper) follow(ctx context.Context, x *fleet.ErasureShown) error {
	uids, err := s.engine.Erased(ctx, x.DB, x.N)
	if err != nil {
		return err
	}
	copies, err := s.reader.Copies(ctx, uids)
	if err != nil {
		return err
	}
	for _, c := range copies {
		sc := ckpt.Scope{Caller: ckpt.Caller{Owner: journal.Daemon, PID: os.Getpid(), Admin: true}, Target: c.Owner,
			Reason: fmt.Sprintf("erased on host %s of the fleet, row %d of database %s", x.Host, x.N, x.DB)}
		if _, err := s.erase(ctx, sc, c.Name); err != nil && ckpt.CodeOf(err) != ckpt.CodeNotFound {
			return err
		}
		s.log.Warn("an agent was erased here, because it was erased on another host of the fleet", "owner", c.Owner, "agent", c.Name, "host", x.Host)
	}
	if err := s.engine.Confirm(ctx, x.DB, x.N, s.host.DB); err != nil {
		return err
	}
	left := x.Waits[:0]
	for _, h := range x.Waits {
		if h.DB != s.host.DB {
			left = append(left, h)
		}
	}
	x.Waits = left
	return nil
}
