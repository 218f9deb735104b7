package daemon

import (
	"context"
	"encoding/json"
	"fmt"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/fleet"
)

// NamesText is the value of a setting that maps names to texts, as a JSON object.
type NamesText string

// UnmarshalText reads a JSON object. If it is none, n stays unchanged.
func (n *NamesText) UnmarshalText(b []byte) error {
	var names map[string]string
	if len(b) > 0 {
		if err := json.Unmarshal(b, &names); err != nil {
			return fmt.Errorf(`is no object of texts, such as {"uid:1000":"acme/build"}`)
		}
	}
	if len(names) == 0 {
		*n = ""
		return nil
	}
	text, err := json.Marshal(names) // in the order of the names
	*n = NamesText(text)
	return err
}

// String returns the JSON object.
func (n NamesText) String() string {
	if n == "" {
		return "{}"
	}
	return string(n)
}

// setTable takes a table of the settings' file.
func (n *NamesText) setTable(table map[string]any) error {
	text, err := json.Marshal(table)
	if err != nil {
		return err
	}
	return n.UnmarshalText(text)
}

// toml is the object as one line of the settings' file.
func (n NamesText) toml() string { return objectTOML(n.String()) }

// names are the entries, nil for none.
func (n NamesText) names() (m map[string]string) {
	_ = json.Unmarshal([]byte(n), &m)
	return m
}

// identities say who the users of this host are in the fleet.
func (c *Config) identities(database string) *fleet.Identities {
	return &fleet.Identities{DB: database, Named: c.FleetPrincipals.names(), Realms: c.FleetRealms.names(), Machine: machineSID()}
}

// identityMap is the map as it is in force, for the audit log. It is "" where nothing
// is mapped.
func (c *Config) identityMap() string {
	if c.FleetPrincipals == "" && c.FleetRealms == "" {
		return ""
	}
	return fmt.Sprintf(`{"principals":%v,"realms":%v}`, c.FleetPrincipals, c.FleetRealms)
}

// tellIdentities lets the audit log say who the users of this host are in the fleet,
// where that has changed.
func (s *service) tellIdentities() error {
	return s.store.SetIdentityMap(s.daemon.Config.identityMap())
}

// renameUsers takes changed principals into use.
func (s *service) renameUsers() {
	if err := s.tellIdentities(); err != nil {
		s.log.Error("fleet.principals could not be noted in the audit log", "error", err)
	}
	if s.shipper == nil {
		return
	}
	s.shipper.who.Store(s.daemon.Config.identities(s.store.FleetID()))
	s.shipper.renamed.Store(true)
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
