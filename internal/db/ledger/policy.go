package ledger

import (
	"encoding/json"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db/sqlite"
	"github.com/ckptsidecar/ckptsidecar/internal/wellformed"
)

// An agent's policy is made of layers: the program's defaults, [policy] of the daemon's settings,
// its owner's policy for all agents, and its own. The table policies holds the second and the
// third. The agent's row holds the merged policy that counts, where all code finds it, SQL
// included. Code that changes a layer merges the affected rows again in the same transaction. The
// calls that set and show policies are in internal/db/policies.

// everybody is the owner of the daemon's layer in the table policies.
const everybody = ckpt.AllOwners

// InsertAgent makes an agent. policy is the text of the policy that counts, p the same as settings.
// With {}, the policy of its owner for all agents counts.
func (s *Core) InsertAgent(tx *Tx, owner, name, uid string, createdAt ckpt.Time, policy, own string, policyAt ckpt.Time, p ckpt.Policy) error {
	if policy == "{}" {
		var err error
		if p, policy, err = s.mergedIn(tx, owner, own); err != nil {
			return err
		}
	}
	return tx.Insert(insertAgent, owner, name, uid, createdAt, policy, own, policyAt, seconds(p.RecoveryKeep), seconds(p.PreOperationKeep))
}

func seconds(d ckpt.Duration) int64 { return int64(time.Duration(d).Seconds()) }

// PolicyRow is a row of the table policies.
type PolicyRow struct {
	Owner  string `db:"owner"`
	Policy string `db:"policy"`
}

// SelectPolicies reads the rows of two owners: of ckpt.AllOwners, which has the daemon's layer, and
// of one other. The daemon's row comes first, because * sorts before all names of owners.
const SelectPolicies = `SELECT owner, policy FROM policies WHERE owner IN (?, ?) ORDER BY owner`

// LayersOf returns the layers of a daemon's and an owner's policy, and what an agent sets.
func LayersOf(list []PolicyRow, own string) []wellformed.Layer {
	all := make([]wellformed.Layer, 0, 3)
	for _, row := range list {
		from := ckpt.PolicyOfOwner
		if row.Owner == everybody {
			from = ckpt.PolicyOfDaemon
		}
		all = append(all, wellformed.Layer{From: from, Set: []byte(row.Policy)})
	}
	return append(all, wellformed.Layer{From: ckpt.PolicyOfAgent, Set: []byte(own)})
}

// mergedIn is the policy that counts for an owner's agent that sets own.
func (s *Core) mergedIn(tx *Tx, owner, own string) (p ckpt.Policy, text string, err error) {
	var list []PolicyRow
	if err := tx.List(&list, SelectPolicies, everybody, owner); err != nil {
		return p, "", err
	}
	return s.MergePolicy(LayersOf(list, own))
}

// MergePolicy merges layers, the weakest first, into the policy that counts, also as text. It
// returns an error if the drift rules refuse the policy.
func (s *Core) MergePolicy(all []wellformed.Layer) (p ckpt.Policy, text string, err error) {
	p, merged, _, err := wellformed.MergePolicies(all...)
	if err == nil && s.Opt.Drift != nil {
		err = s.Opt.Drift.Check(&p)
	}
	return p, string(merged), err
}

// readBasePolicy is the policy that counts for an owner's agent that does not exist yet.
func (s *Core) readBasePolicy(owner string) (ckpt.Policy, error) {
	var list []PolicyRow
	if err := s.RO.Select(&list, SelectPolicies, everybody, owner); err != nil {
		return ckpt.DefaultPolicy(), sqlite.ReadError(err)
	}
	p, _, _, err := wellformed.MergePolicies(LayersOf(list, "")...)
	if err != nil {
		return ckpt.DefaultPolicy(), err
	}
	p.Fill()
	return p, nil
}

// BasePolicy is the policy that counts for an agent of an owner if the agent sets nothing itself.
func (s *Core) BasePolicy(tx *Tx, owner string) (ckpt.Policy, error) {
	p, _, err := s.mergedIn(tx, owner, "{}")
	return p, err
}

// StorePolicy sets an agent's own policy, makes the agent if there is none, and applies the merged
// policy to all of its runs.
func (s *Core) StorePolicy(tx *Tx, sc ckpt.Scope, name string, own []byte, e AuditEntry) (*AgentRow, error) {
	p, text, err := s.mergedIn(tx, sc.Whose(), string(own))
	if err != nil {
		return nil, err
	}
	row, err := s.MakeAgent(tx, sc.Whose(), name)
	if err != nil {
		return nil, err
	}
	changed := &AgentRow{ID: row.ID, Owner: row.Owner, Name: row.Name, Policy: text, Own: string(own), Settings: p}
	if err := s.WritePolicy(tx, changed); err != nil {
		return nil, err
	}
	e.Detail = map[string]any{"policy": json.RawMessage(own)}
	if err := tx.Audit(e); err != nil {
		return nil, err
	}
	_, err = s.RetainAll(tx, changed, e)
	return changed, err
}

// WritePolicy writes the policy that counts for an agent and what the agent sets itself.
func (s *Core) WritePolicy(tx *Tx, agent *AgentRow) error {
	p := &agent.Settings
	p.Fill()
	err := tx.Update(`UPDATE agents SET policy = ?, policy_own = ?, policy_at = ?, recovery_keep_s = ?, pre_operation_keep_s = ? WHERE id = ?`,
		agent.Policy, agent.Own, tx.Now, seconds(p.RecoveryKeep), seconds(p.PreOperationKeep), agent.ID)
	if err == nil {
		tx.ForgetRuns()
		s.ChangeAgent(tx, AgentKey{agent.Owner, agent.Name}, agent)
	}
	return err
}

// PolicyOver is the policy that an agent of an owner must set itself so that text, a policy from
// elsewhere, is the policy that counts. An empty text sets nothing.
func (s *Core) PolicyOver(tx *Tx, owner string, text []byte) ([]byte, error) {
	if string(text) == "{}" {
		return text, nil
	}
	want, err := wellformed.ParsePolicy(text)
	if err != nil {
		return nil, err
	}
	base, err := s.BasePolicy(tx, owner)
	if err != nil {
		return nil, err
	}
	return wellformed.PolicyOver(want, base)
}
