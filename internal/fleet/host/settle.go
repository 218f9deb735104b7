package host

import (
	"cmp"
	"context"
	"slices"

	"github.com/ckptsidecar/ckptsidecar/internal/db/journal"
	"github.com/ckptsidecar/ckptsidecar/internal/fleet"
)

// settle ships the runs that the engine lacks, and removes those that it should not have,
// if no row of the audit log tells the shipper to. That happens if fleet.ship has changed,
// or if such rows were archived before they were shipped. settle works once for each connection, when everything else
// is shipped.
func (s *shipper) settle(ctx context.Context) error {
	if !s.strays {
		return nil
	}
	names, err := s.unsettled(ctx)
	if err != nil {
		return err
	}
	if err := s.dropBrought(ctx); err != nil {
		return err
	}
	for _, n := range s.whole.inTurn(names) {
		err := s.sendAlso(ctx, n)
		if s.whole.note(n, err); err != nil {
			return err
		}
	}
	s.strays, s.gap, s.whole = false, false, whole{}
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
	taken := s.takenRuns() // the engine may lack these too, but would refuse them
	mine := slices.DeleteFunc(slices.Clone(runs), func(n fleet.Name) bool { return taken[n.UID] })
	lacks, err := s.engine.Lacks(ctx, mine)
	if err != nil {
		return nil, err
	}
	names = slices.Concat(names, gone, lacks)
	if s.gap {
		names = append(names, s.whole.left(runs, names)...)
	}
	return names, nil
}

// dropBrought removes from the engine the runs of agents that stay on this host, if the host was given these runs and has
// brought them here. No batch names them. What is not here yet stays in the engine.
func (s *shipper) dropBrought(ctx context.Context) error {
	_, local, err := s.reader.Here(ctx, s.choice)
	if err != nil || len(local) == 0 {
		return err
	}
	stay := map[fleet.Name]bool{}
	for _, n := range local {
		stay[fleet.Name{Owner: n.Owner, Agent: n.Agent}] = true
	}
	runs, _, err := s.reader.Here(ctx, journal.Choice{})
	if err != nil {
		return err
	}
	var here []fleet.Name
	for _, n := range runs {
		if !stay[fleet.Name{Owner: n.Owner, Agent: n.Agent}] {
			continue
		}
		whole, _, err := s.reader.HasRun(ctx, n.Owner, n.Agent, n.Run, n.UID)
		if err != nil {
			return err
		}
		if whole {
			here = append(here, n)
		}
	}
	return s.engine.DropBrought(ctx, s.host.DB, here)
}

// whole is what this daemon has sent to the engine that no row names, since rows were
// archived before they were shipped or since the last settling. After that, rows name what
// changes.
type whole struct {
	sent   map[fleet.Name]bool
	failed map[fleet.Name]int // how often
}

// note notes how it went to send something.
func (w *whole) note(n fleet.Name, err error) {
	if w.sent == nil {
		w.sent, w.failed = map[fleet.Name]bool{}, map[fleet.Name]int{}
	}
	if err != nil {
		w.failed[n]++
		return
	}
	w.sent[n] = true
}

// inTurn orders what is to be sent, so that what the engine does not take holds up nothing
// else.
func (w *whole) inTurn(names []fleet.Name) []fleet.Name {
	slices.SortStableFunc(names, func(a, b fleet.Name) int { return cmp.Compare(w.failed[a], w.failed[b]) })
	return names
}

// left returns the runs that were not sent yet, and are not among others.
func (w *whole) left(runs, others []fleet.Name) []fleet.Name {
	there := map[fleet.Name]bool{}
	for _, n := range others {
		there[n] = true
	}
	return slices.DeleteFunc(runs, func(n fleet.Name) bool { return w.sent[n] || there[n] })
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
