package host

import (
	"context"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/fleet"
	"github.com/ckptsidecar/ckptsidecar/internal/fleet/pg"
	"github.com/ckptsidecar/ckptsidecar/internal/fleet/seal"
)

// loadKeys reads the keys again. If that fails, nothing may be shipped: it would go in
// the clear, which nobody wants.
func (s *shipper) loadKeys() error {
	var ring *seal.Ring
	if s.keys != nil {
		var err error
		if ring, err = s.keys(); err != nil {
			return err
		}
	}
	s.sealer = nil
	var names []string
	if ring != nil {
		s.sealer, names = seal.NewSealer(ring, s.host.DB), []string{ring.Sealing().ID}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tally.sealing = names
	return nil
}

// prepare adds the principals of the owners to a batch, and seals it.
func (s *shipper) prepare(c *fleet.Changes) error {
	s.identities().Name(c)
	if s.sealer == nil {
		return nil
	}
	return s.sealer.Changes(c)
}

// opener returns what opens the seals of all hosts.
func opener(keys func() (*seal.Ring, error)) (*seal.Opener, error) {
	if keys == nil {
		return &seal.Opener{}, nil
	}
	ring, err := keys()
	return &seal.Opener{Ring: ring}, err
}

// mustOpen refuses a run of which this host cannot open everything. What does not open is not
// brought, and the engine loses it when this host ships the run. With partly it is enough that
// the run and its agent open. mustOpen returns the agent.
func (c *claimant) mustOpen(ctx context.Context, e *pg.Engine, sc ckpt.Scope, run *fleet.Claimable, partly bool, hint string) (*fleet.LostAgent, error) {
	o, err := opener(c.keys)
	if err != nil {
		return nil, err
	}
	agent, err := openAgent(o, sc, run, hint)
	if err != nil || partly {
		return agent, err
	}
	names, err := e.KeysOfParts(ctx, run.UID)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		if !o.Has(name) {
			return nil, keyMissing(sc, run, name, hint)
		}
	}
	return agent, nil
}

// openAgent opens the agent of a run, and the run's own row.
func openAgent(o *seal.Opener, sc ckpt.Scope, run *fleet.Claimable, hint string) (*fleet.LostAgent, error) {
	agent := run.Lost(run.Term)
	if err := o.Agent(&agent); err != nil {
		return nil, unopened(sc, run, err.Error(), hint)
	}
	if why := agent.Runs[0].Damage; why != "" {
		return nil, unopened(sc, run, why, hint)
	}
	return &agent, nil
}

// unopened says why a run cannot be opened here. hint says what else an administrator can do
// about a missing key.
func unopened(sc ckpt.Scope, run *fleet.Claimable, why, hint string) *ckpt.Error {
	if seal.NoKey(why) {
		return keyMissing(sc, run, seal.MissingKey(why), hint)
	}
	return ckpt.Errorf(ckpt.CodeCorrupt, "the engine's copy of run %s of %s is damaged: %s", run.Run, run.Agent, why)
}

// keyMissing says that this host lacks a key of a run. Only an administrator is told which.
func keyMissing(sc ckpt.Scope, run *fleet.Claimable, key, hint string) *ckpt.Error {
	if !sc.Admin {
		return ckpt.Errorf(ckpt.CodeConflict, "run %s of %s is in the fleet, and this host cannot open it: ask an administrator", run.Run, run.Agent)
	}
	return ckpt.Errorf(ckpt.CodeConflict, "what the engine has of run %s of %s is sealed with the key %s, and this host does not have it: "+
		"add it to fleet.key_file%s", run.Run, run.Agent, key, hint)
}
