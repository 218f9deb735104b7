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
		s.sealer, names = seal.NewSealer(ring, s.host.DB), ring.Sealing()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tally.sealing = names
	return nil
}

// prepare adds the principals of the owners to a batch, and seals it.
func (s *shipper) prepare(c *fleet.Changes) error {
	ids := s.identities()
	ids.Name(c)
	if s.sealer == nil {
		return nil
	}
	return s.sealer.Changes(c, ids)
}

// opener returns what opens the seals of all hosts.
func opener(keys func() (*seal.Ring, error)) (*seal.Opener, error) {
	if keys == nil {
		return &seal.Opener{}, nil
	}
	ring, err := keys()
	return &seal.Opener{Ring: ring}, err
}

// mustOpenSome refuses to give a host's runs to this host if it can open none of them.
func mustOpenSome(ctx context.Context, e *pg.Engine, o *seal.Opener, db string) error {
	agents, err := e.Lost(ctx, db)
	if err != nil {
		return err
	}
	key := ""
	for i := range agents {
		for _, r := range agents[i].Runs {
			if o.Has(r.KeyID) {
				return nil
			}
			key = r.KeyID
		}
	}
	if key == "" {
		return nil
	}
	return ckpt.Errorf(ckpt.CodeConflict,
		"all runs of this host are sealed, for example with the key %s, and this host has none of the keys: add them to fleet.key_file; nothing was changed",
		key)
}
