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
	"github.com/ckptsidecar/ckptsidecar/internal/fleet/pg"
)

// Erased returns which hosts have erased an agent that this host has just erased, and
// which have not yet.
func (v *view) Erased(ctx context.Context, owner, agent string) *ckpt.ErasedFleet {
	t := v.shipper.told()
	e := &ckpt.ErasedFleet{Confirmed: []string{v.shipper.host.Name}, Waiting: []string{}}
	var err error
	if e.N, err = v.shipper.reader.ErasureOf(ctx, owner, agent); err != nil {
		v.shipper.log.Error("the row of an erasure cannot be found in the audit log", "owner", owner, "agent", agent, "error", err)
	}
	for _, h := range t.others {
		e.Waiting = append(e.Waiting, h.Name)
	}
	return e
}

// Erasure asks the engine which hosts have confirmed an erasure of this host. Until the
// engine has the erasure, no other host can have confirmed it.
func (v *view) Erasure(ctx context.Context, sc ckpt.Scope, n int64) (*ckpt.ErasedFleet, error) {
	owner, _, err := v.shipper.reader.Erasure(ctx, n)
	if err != nil {
		return nil, err
	}
	if owner == "" || owner != sc.Whose() && !sc.Admin {
		return nil, ckpt.Errorf(ckpt.CodeNotFound, "row %d of the audit log is no erasure of an agent of yours", n)
	}
	return askEngine(ctx, v, sc.Admin, func(e *pg.Engine) (*ckpt.ErasedFleet, error) { return v.whoErased(ctx, e, n) })
}

func (v *view) whoErased(ctx context.Context, e *pg.Engine, n int64) (*ckpt.ErasedFleet, error) {
	said := &ckpt.ErasedFleet{N: n, Confirmed: []string{v.shipper.host.Name}, Waiting: []string{}}
	confirmed, waits, is, err := e.Erasure(ctx, v.shipper.host.DB, n)
	if err != nil {
		return nil, err
	}
	said.Confirmed, said.Waiting = append(said.Confirmed, confirmed...), append(said.Waiting, waits...)
	if is {
		return said, nil
	}
	others, err := e.Others(ctx, v.shipper.host.DB)
	for _, h := range others {
		said.Waiting = append(said.Waiting, h.Name)
	}
	return said, err
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
