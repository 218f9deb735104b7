package host

import (
	"context"

	"github.com/ckptsidecar/ckptsidecar/internal/fleet"
)

// settle brings to the engine the runs that it lacks although no row of the audit log
// tells of them any more, and takes away the agents that are to stay on this host. Both
// are there after fleet.ship has changed; the first also where old rows were archived before
// this host belonged to a fleet. It happens once for each connection, when all else is shipped.
func (s *shipper) settle(ctx context.Context) error {
	if !s.strays {
		return nil
	}
	runs, local, err := s.reader.Here(ctx, s.choice)
	if err != nil {
		return err
	}
	lacks, err := s.engine.Lacks(ctx, runs)
	if err != nil {
		return err
	}
	holds, err := s.engine.Holds(ctx, s.host.DB, local)
	if err != nil {
		return err
	}
	for _, n := range append(holds, lacks...) {
		if err := s.sendAlso(ctx, n); err != nil {
			return err
		}
	}
	s.strays = false
	return nil
}

// sendAlso sends what is new, and one that no row names. Each goes by itself, so that no
// batch is larger than one run.
func (s *shipper) sendAlso(ctx context.Context, n fleet.Name) error {
	c, err := s.since(ctx, n)
	if err != nil {
		return err
	}
	return s.send(ctx, c)
}
