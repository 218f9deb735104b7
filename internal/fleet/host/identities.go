package host

import (
	"context"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/fleet"
)

// identitiesOf returns the identities of this host, with its database and machine
// filled in.
func identitiesOf(users fleet.Identities, database string) *fleet.Identities {
	users.DB, users.Machine = database, machineSID()
	return &users
}

// identities returns which principals the users of this host are.
func (s *shipper) identities() *fleet.Identities {
	if ids := s.who.Load(); ids != nil {
		return ids
	}
	return &fleet.Identities{DB: s.host.DB}
}

// nameOwners tells the engine which principals own what it has of this host.
func (s *shipper) nameOwners(ctx context.Context) error {
	owners, err := s.reader.Owners(ctx)
	if err != nil {
		return err
	}
	ids := s.identities()
	for uid, owner := range owners {
		owners[uid] = ids.Principal(owner)
	}
	return s.engine.SetPrincipals(ctx, s.host.DB, owners)
}

// allowed returns the runs that a caller may claim, each with the user of this host who
// gets it. An administrator may claim all runs, a user those of his principal. sealed are
// such runs too, whose own key this host lacks.
func (c *claimant) allowed(sc ckpt.Scope, all []fleet.Claimable) (mine, sealed []fleet.Claimable, err error) {
	o, err := opener(c.keys)
	if err != nil {
		return nil, nil, err
	}
	ids := c.who()
	for _, run := range all {
		run.Here = ids.Here(run.Principal, run.Owner)
		switch {
		case !sc.Admin && !fleet.SamePrincipal(run.Principal, ids.Principal(sc.Owner)):
		case !o.Has(run.KeyID):
			sealed = append(sealed, run)
		default:
			mine = append(mine, run)
		}
	}
	return mine, sealed, nil
}
