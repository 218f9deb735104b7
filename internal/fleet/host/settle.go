package host

import (
	"context"
	"slices"

	"github.com/ckptsidecar/ckptsidecar/internal/fleet"
)

// settle ships the runs that the engine lacks, and removes those that it should not have,
// if no row of the audit log tells the shipper to. That happens if fleet.ship has changed,
// if such rows were archived before they were shipped, or if the janitor has cleaned up
// while this host was away. What the janitor has removed is shipped again, because this
// host's own retention decides. settle works once for each connection, when everything else
// is shipped.
func (s *shipper) settle(ctx context.Context) error {
	if !s.strays {
		return nil
	}
	names, err := s.unsettled(ctx)
	if err != nil {
		return err
	}
	for _, n := range names {
		if err := s.sendAlso(ctx, n); err != nil {
			return err
		}
	}
	if err := s.engine.AnswerCleanings(ctx, s.host.DB); err != nil {
		return err
	}
	s.strays, s.gap = false, false
	s.keepWord(true)
	return nil
}

// unsettled returns the agents and runs that must be read although no row names them.
func (s *shipper) unsettled(ctx context.Context) ([]fleet.Name, error) {
	runs, local, err := s.reader.Here(ctx, s.choice)
	if err != nil {
		return nil, err
	}
	names, err := s.engine.Holds(ctx, s.host.DB, local)
	if err != nil {
		return nil, err
	}
	gone, err := s.engine.Strays(ctx, s.host.DB, runs)
	if err != nil {
		return nil, err
	}
	if s.gap {
		return slices.Concat(names, gone, runs), nil
	}
	taken := s.takenRuns() // the engine may lack these too, but would refuse them
	runs = slices.DeleteFunc(runs, func(n fleet.Name) bool { return taken[n.UID] })
	lacks, err := s.engine.Lacks(ctx, runs)
	if err != nil {
		return nil, err
	}
	cleaned, err := s.engine.Cleaned(ctx, s.host.DB, runs)
	return slices.Concat(names, gone, lacks, cleaned), err
}

// sendAlso sends what is new, and one agent or run that no row names. Each has a batch of
// its own, so that no batch is larger than one run.
func (s *shipper) sendAlso(ctx context.Context, n fleet.Name) error {
	c, err := s.read(ctx, n)
	if err != nil {
		return err
	}
	return s.send(ctx, c)
}
