package host

import (
	"context"
	"slices"

	"github.com/ckptsidecar/ckptsidecar/internal/fleet"
	"github.com/ckptsidecar/ckptsidecar/internal/fleet/pg"
)

// learnTaken asks the engine which runs of this host other hosts have claimed. From then
// on, this host refuses writes to them.
func (s *shipper) learnTaken(ctx context.Context) error {
	return s.heedTaken(ctx, s.engine, func(ctx context.Context) ([]fleet.Taken, error) { return s.engine.Taken(ctx, s.host.DB) })
}

// heedRefused learns which hosts own the runs that the engine has refused. If an engine
// that went back has lost the claim of a run, or if another host has a run of the same name, this
// host notes in the engine that the run is not its own.
func (s *shipper) heedRefused(ctx context.Context, c *fleet.Changes, fenced []string) error {
	if len(fenced) == 0 {
		return nil
	}
	if err := s.learnTaken(ctx); err != nil {
		return err
	}
	taken := s.takenRuns()
	var unclaimed []fleet.RunTerm
	var unborn []fleet.Run
	for i := range c.Runs {
		r := &c.Runs[i]
		if !taken[r.UID] && slices.Contains(fenced, fleet.RunName(r.Owner, r.Agent, r.Name)) {
			unclaimed, unborn = append(unclaimed, fleet.RunTerm{UID: r.UID, Term: r.Term}), append(unborn, *r)
		}
	}
	if len(unclaimed) == 0 {
		return nil
	}
	if err := s.engine.Outrun(ctx, s.host.DB, unclaimed); err != nil {
		return err
	}
	if err := s.engine.Unborn(ctx, s.host.DB, unborn); err != nil {
		return err
	}
	return s.learnTaken(ctx)
}

// owns is called when this host has claimed a run. run has the form that Ship uses.
// Another host may have claimed the run from this one before.
func (s *shipper) owns(ctx context.Context, e *pg.Engine, run string) error {
	err := s.heedTaken(ctx, e, func(ctx context.Context) ([]fleet.Taken, error) { return e.Taken(ctx, s.host.DB) })
	if err == nil {
		s.waiters.forgive(run)
	}
	return err
}

// heedTaken asks, and uses the answer unless the answer to a later question was used
// before. It also tells the requests that wait for the engine. The shipper and the keeper
// of the lease both ask.
func (s *shipper) heedTaken(ctx context.Context, e *pg.Engine, ask func(context.Context) ([]fleet.Taken, error)) error {
	question := s.questions.Add(1)
	taken, err := ask(ctx)
	if err != nil {
		return err
	}
	s.heeding.Lock()
	defer s.heeding.Unlock()
	if question < s.heeded {
		return nil
	}
	if taken, err = s.remember(ctx, e, taken); err != nil {
		return err
	}
	fenced, err := s.reader.Fence(ctx, taken)
	if err != nil {
		return err
	}
	s.waiters.fence(fenced)
	s.heeded = question
	for i := range taken {
		if !s.isTaken(taken[i].UID, taken[i].Term) {
			s.fenced.Add(1)
			s.log.Warn("another host has claimed a run of this host; writes to it are refused here", "run", taken[i].UID,
				"host", taken[i].Host, "term", taken[i].Term)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.taken = taken
	return nil
}
