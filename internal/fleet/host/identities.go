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
// gets it. An administrator may claim all runs, a user those of his principal. It
// leaves out runs that this host cannot open; an administrator is told why if none is
// left.
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
