package host

import (
	"context"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/fleet"
)

// identitiesOf are identities of this host, whose database is named.
func identitiesOf(users fleet.Identities, database string) *fleet.Identities {
	users.DB, users.Machine = database, machineSID()
	return &users
}

// identities say who the users of this host are in the fleet.
func (s *shipper) identities() *fleet.Identities {
	if ids := s.who.Load(); ids != nil {
		return ids
	}
	return &fleet.Identities{DB: s.host.DB}
}

// nameOwners lets the engine know who owns what it has of this host.
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

// allowed are the runs that a caller may claim, each with the user of this host who
// gets it: an administrator may claim all, a user those of his principal. A run that
// this host cannot open is none of them; an administrator is told why.
func (c *claimant) allowed(sc ckpt.Scope, all []fleet.Claimable, r fleet.ClaimRequest) (mine []fleet.Claimable, err error) {
	o, err := opener(c.keys)
	if err != nil {
		return nil, err
	}
	ids := c.who()
	sealed := ""
	for _, run := range all {
		run.Here = ids.Here(run.Principal, run.Owner)
		switch {
		case !sc.Admin && !fleet.SamePrincipal(run.Principal, ids.Principal(sc.Owner)):
		case !o.Has(run.KeyID):
			sealed = run.KeyID
		default:
			mine = append(mine, run)
		}
	}
	if len(mine) == 0 && sealed != "" && sc.Admin {
		return nil, ckpt.Errorf(ckpt.CodeConflict,
			"what is known of %s is sealed with the key %s, and this host does not have it: add it to fleet.key_file", r.Agent, sealed)
	}
	return mine, nil
}
