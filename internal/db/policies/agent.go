package policies

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db/ledger"
	"github.com/ckptsidecar/ckptsidecar/internal/db/sqlite"
	"github.com/ckptsidecar/ckptsidecar/internal/wellformed"
)

// SetPolicy is SetOwnPolicy with the members of p that differ from the defaults.
func (s *Policies) SetPolicy(ctx context.Context, sc ckpt.Scope, name string, p ckpt.Policy) (*ckpt.Policy, error) {
	if err := wellformed.Policy(p); err != nil {
		return nil, err
	}
	own, err := wellformed.PolicyText(p)
	if err != nil {
		return nil, err
	}
	return s.SetOwnPolicy(ctx, sc, name, own)
}

// SetOwnPolicy replaces what an agent's own policy sets, and at once applies the merged policy to
// all of its runs, so that no invariant waits for the next round of retention. It makes the agent
// if there is none. match are the tags, as PolicyTag returns them, of the policies that may be
// replaced; without a tag, any policy may be replaced.
func (s *Policies) SetOwnPolicy(_ context.Context, sc ckpt.Scope, name string, own []byte, match ...string) (*ckpt.Policy, error) {
	if err := ckpt.CheckAgentName(name); err != nil {
		return nil, err
	}
	own, err := s.checkLayer(ckpt.PolicyOfAgent, own)
	if err != nil {
		return nil, err
	}
	e := ledger.Entry(sc, "set_policy", name)
	var p *ckpt.Policy
	err = s.core.Submit(&ledger.Op{Owner: sc.Caller.Owner, Size: int64(len(own)), Claim: sqlite.Frees, Entry: e, Do: func(tx *ledger.Tx) error {
		if err := s.mayReplace(tx, sc, name, match); err != nil {
			return err
		}
		row, err := s.core.StorePolicy(tx, sc, name, own, e)
		if err == nil {
			p = &row.Settings
		}
		return err
	}})
	return p, err
}

// mayReplace refuses to replace a policy that is not the one that the caller has read.
func (s *Policies) mayReplace(tx *ledger.Tx, sc ckpt.Scope, name string, match []string) error {
	if len(match) == 0 {
		return nil
	}
	row, err := s.core.Agent(tx, sc.Whose(), name)
	if err != nil {
		return err
	}
	own := noPolicy
	if row != nil {
		own = row.Own
	}
	if !slices.Contains(match, policyTag(own)) {
		return ckpt.Errorf(ckpt.CodeConflict, "the policy of agent %s changed since you read it: read it again, and repeat your change", name)
	}
	return nil
}

// noPolicy is the own policy of an agent that has set nothing.
const noPolicy = "{}"

// policyTag names an agent's own policy.
func policyTag(own string) string {
	sum := sha256.Sum256([]byte(own))
	return hex.EncodeToString(sum[:16])
}

// PolicyTag names an agent's own policy: another policy has another tag.
func (s *Policies) PolicyTag(ctx context.Context, sc ckpt.Scope, name string) (string, error) {
	row, err := s.core.FindAgent(ctx, sc, name)
	if err != nil {
		return "", err
	}
	return policyTag(row.Own), nil
}

// checkLayer refuses a layer that is invalid in itself.
func (s *Policies) checkLayer(from ckpt.PolicySource, set []byte) ([]byte, error) {
	set, err := wellformed.OwnPolicy(set)
	if err == nil {
		_, _, err = s.core.MergePolicy([]wellformed.Layer{{From: from, Set: set}})
	}
	return set, err
}

// Policy returns an agent's settings.
func (s *Policies) Policy(ctx context.Context, sc ckpt.Scope, name string) (*ckpt.Policy, error) {
	s.core.AuditRead(sc, "read_policy", name, "")
	row, err := s.core.FindAgent(ctx, sc, name)
	if err != nil {
		return nil, err
	}
	return &row.Settings, nil
}

// PolicyLayers returns an agent's settings and the source of each. With ckpt.AllAgents, it returns
// the settings of the owner's agents that have set nothing themselves.
func (s *Policies) PolicyLayers(ctx context.Context, sc ckpt.Scope, name string) (*ckpt.PolicyLayers, error) {
	if name == ckpt.AllAgents && sc.Whose() == ckpt.AllOwners {
		return nil, ckpt.Errorf(ckpt.CodeInvalid, "name one owner: each owner has a policy for all of its agents")
	}
	own := ""
	if name == ckpt.AllAgents {
		s.core.AuditRead(sc, "read_policy", "", "")
	} else {
		s.core.AuditRead(sc, "read_policy", name, "")
		row, err := s.core.FindAgent(ctx, sc, name)
		if err != nil {
			return nil, err
		}
		own = row.Own
	}
	return s.layersIn(ctx, sc.Whose(), own)
}

func (s *Policies) layersIn(ctx context.Context, owner, own string) (*ckpt.PolicyLayers, error) {
	var list []ledger.PolicyRow
	if err := s.core.RO.SelectContext(ctx, &list, ledger.SelectPolicies, ckpt.AllOwners, owner); err != nil {
		return nil, sqlite.ReadError(err)
	}
	return layersOf(list, own)
}

func layersOf(list []ledger.PolicyRow, own string) (*ckpt.PolicyLayers, error) {
	all := ledger.LayersOf(list, own)
	p, _, from, err := wellformed.MergePolicies(all...)
	if err != nil {
		return nil, err
	}
	p.Fill()
	answer := &ckpt.PolicyLayers{Policy: p, From: from, Owner: ckpt.JSON("{}"), Daemon: ckpt.JSON("{}")}
	for _, layer := range all {
		switch {
		case layer.From == ckpt.PolicyOfDaemon:
			answer.Daemon = layer.Set
		case layer.From == ckpt.PolicyOfOwner:
			answer.Owner = layer.Set
		case own != "":
			answer.Agent = layer.Set
		}
	}
	var members map[string]json.RawMessage
	text, err := json.Marshal(p)
	if err == nil {
		err = json.Unmarshal(text, &members)
	}
	for name := range members {
		if from[name] == "" {
			from[name] = ckpt.PolicyBuiltIn
		}
	}
	return answer, err
}
