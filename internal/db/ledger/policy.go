package ledger

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"
	"time"

	"github.com/jmoiron/sqlx"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db/sqlite"
	"github.com/ckptsidecar/ckptsidecar/internal/wellformed"
)

// An agent's policy is made of layers: what the program comes with, [policy] of the
// daemon's settings, its owner's policy for all agents, and its own. The table
// policies holds the second and the third. What counts stands merged in the agent's
// row, where everything that asks for a policy finds it, in SQL too; who changes a
// layer merges the rows that it is part of anew in the same transaction.

// everybody is the owner in the table policies under which the daemon's layer stands.
const everybody = ckpt.AllOwners

// InsertAgent makes an agent. policy is the text of what counts, p the same as
// settings; with {} the policy of its owner for all agents counts.
func (s *Core) InsertAgent(tx *Tx, owner, name, uid string, createdAt ckpt.Time, policy, own string, policyAt ckpt.Time, p ckpt.Policy) error {
	if policy == "{}" {
		var err error
		if p, policy, err = s.mergedIn(tx, owner, own); err != nil {
			return err
		}
	}
	return tx.Exec(`INSERT INTO agents (id, owner, name, uid, created_at, policy, policy_own, policy_at, recovery_keep_s, pre_operation_keep_s)
		VALUES (`+NextAgent+`, ?, ?, nullif(?, ''), ?, ?, ?, ?, ?, ?)`, owner, name, uid, createdAt, policy, own, policyAt,
		seconds(p.RecoveryKeep), seconds(p.PreOperationKeep))
}

func seconds(d ckpt.Duration) int64 { return int64(time.Duration(d).Seconds()) }

// Policy answers an agent's settings.
func (s *Core) Policy(ctx context.Context, sc ckpt.Scope, name string) (*ckpt.Policy, error) {
	s.AuditRead(sc, "read_policy", name, "")
	row, err := s.FindAgent(ctx, sc, name)
	if err != nil {
		return nil, err
	}
	return &row.Settings, nil
}

// PolicyLayers answers an agent's settings and where each comes from; with
// ckpt.AllAgents those of the owner's agents that have set nothing themselves.
func (s *Core) PolicyLayers(ctx context.Context, sc ckpt.Scope, name string) (*ckpt.PolicyLayers, error) {
	if name == ckpt.AllAgents && sc.Whose() == ckpt.AllOwners {
		return nil, ckpt.Errorf(ckpt.CodeInvalid, "name one owner: each owner has a policy for all of its agents")
	}
	own := ""
	if name == ckpt.AllAgents {
		s.AuditRead(sc, "read_policy", "", "")
	} else {
		s.AuditRead(sc, "read_policy", name, "")
		row, err := s.FindAgent(ctx, sc, name)
		if err != nil {
			return nil, err
		}
		own = row.Own
	}
	return s.layersIn(ctx, sc.Whose(), own)
}

func (s *Core) layersIn(ctx context.Context, owner, own string) (*ckpt.PolicyLayers, error) {
	var list []policyRow
	if err := sqlx.SelectContext(ctx, s.RO, &list, selectPolicies, everybody, owner); err != nil {
		return nil, sqlite.ReadError(err)
	}
	return layersOf(list, own)
}

// policyRow is a row of the table policies.
type policyRow struct {
	Owner  string `db:"owner"`
	Policy string `db:"policy"`
}

// selectPolicies has the daemon's layer before an owner's, as * is before all that
// an owner may be called.
const selectPolicies = `SELECT owner, policy FROM policies WHERE owner IN (?, ?) ORDER BY owner`

// layers are the rows of a daemon's and an owner's policy, and what an agent sets.
func layers(list []policyRow, own string) []wellformed.Layer {
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

func layersOf(list []policyRow, own string) (*ckpt.PolicyLayers, error) {
	all := layers(list, own)
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

// mergedIn is the policy that counts for an owner's agent that sets own.
func (s *Core) mergedIn(tx *Tx, owner, own string) (p ckpt.Policy, text string, err error) {
	var list []policyRow
	if err := tx.List(&list, selectPolicies, everybody, owner); err != nil {
		return p, "", err
	}
	return s.merged(layers(list, own))
}

func (s *Core) merged(all []wellformed.Layer) (p ckpt.Policy, text string, err error) {
	p, merged, _, err := wellformed.MergePolicies(all...)
	if err == nil && s.Opt.Drift != nil {
		err = s.Opt.Drift.Check(&p)
	}
	return p, string(merged), err
}

// readBasePolicy is what counts for an agent of an owner that is still to be made.
func (s *Core) readBasePolicy(owner string) (ckpt.Policy, error) {
	var list []policyRow
	if err := s.RO.Select(&list, selectPolicies, everybody, owner); err != nil {
		return ckpt.DefaultPolicy(), sqlite.ReadError(err)
	}
	p, _, _, err := wellformed.MergePolicies(layers(list, "")...)
	if err != nil {
		return ckpt.DefaultPolicy(), err
	}
	p.Fill()
	return p, nil
}

// BasePolicy is what counts for an agent of an owner that sets nothing itself.
func (s *Core) BasePolicy(tx *Tx, owner string) (ckpt.Policy, error) {
	p, _, err := s.mergedIn(tx, owner, "{}")
	return p, err
}

// SetPolicy is SetOwnPolicy of what p has other than the defaults.
func (s *Core) SetPolicy(ctx context.Context, sc ckpt.Scope, name string, p ckpt.Policy) (*ckpt.Policy, error) {
	if err := wellformed.Policy(p); err != nil {
		return nil, err
	}
	own, err := wellformed.PolicyText(p)
	if err != nil {
		return nil, err
	}
	return s.SetOwnPolicy(ctx, sc, name, own)
}

// SetOwnPolicy replaces what an agent's own policy sets, and applies what then
// counts to all of its runs at once, so that no invariant waits for the next round
// of retention. It makes the agent where there is none. match are the tags of what may
// be replaced, as PolicyTag gives them; without one anything may.
func (s *Core) SetOwnPolicy(_ context.Context, sc ckpt.Scope, name string, own []byte, match ...string) (*ckpt.Policy, error) {
	if err := ckpt.CheckAgentName(name); err != nil {
		return nil, err
	}
	own, err := s.checkLayer(ckpt.PolicyOfAgent, own)
	if err != nil {
		return nil, err
	}
	e := Entry(sc, "set_policy", name)
	var p *ckpt.Policy
	err = s.Submit(&Op{Owner: sc.Caller.Owner, Size: int64(len(own)), Claim: sqlite.Frees, Entry: e, Do: func(tx *Tx) error {
		if err := s.mayReplace(tx, sc, name, match); err != nil {
			return err
		}
		row, err := s.StorePolicy(tx, sc, name, own, e)
		if err == nil {
			p = &row.Settings
		}
		return err
	}})
	return p, err
}

// mayReplace refuses to replace a policy that is not what the caller has read.
func (s *Core) mayReplace(tx *Tx, sc ckpt.Scope, name string, match []string) error {
	if len(match) == 0 {
		return nil
	}
	row, err := s.Agent(tx, sc.Whose(), name)
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

// noPolicy is what an agent has set that has set nothing.
const noPolicy = "{}"

// policyTag names what an agent has set itself.
func policyTag(own string) string {
	sum := sha256.Sum256([]byte(own))
	return hex.EncodeToString(sum[:16])
}

// PolicyTag names what an agent has set itself: another policy has another tag.
func (s *Core) PolicyTag(ctx context.Context, sc ckpt.Scope, name string) (string, error) {
	row, err := s.FindAgent(ctx, sc, name)
	if err != nil {
		return "", err
	}
	return policyTag(row.Own), nil
}

// checkLayer refuses a layer that is wrong in itself.
func (s *Core) checkLayer(from ckpt.PolicySource, set []byte) ([]byte, error) {
	set, err := wellformed.OwnPolicy(set)
	if err == nil {
		_, _, err = s.merged([]wellformed.Layer{{From: from, Set: set}})
	}
	return set, err
}

// StorePolicy is SetOwnPolicy in a transaction.
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
	if err := s.writePolicy(tx, changed); err != nil {
		return nil, err
	}
	e.Detail = map[string]any{"policy": json.RawMessage(own)}
	if err := tx.Audit(e); err != nil {
		return nil, err
	}
	_, err = s.retainAll(tx, changed, e)
	return changed, err
}

// writePolicy writes what counts for an agent and what it sets itself.
func (s *Core) writePolicy(tx *Tx, agent *AgentRow) error {
	p := &agent.Settings
	p.Fill()
	err := tx.Exec(`UPDATE agents SET policy = ?, policy_own = ?, policy_at = ?, recovery_keep_s = ?, pre_operation_keep_s = ? WHERE id = ?`,
		agent.Policy, agent.Own, tx.Now, seconds(p.RecoveryKeep), seconds(p.PreOperationKeep), agent.ID)
	if err == nil {
		s.ChangeAgent(tx, AgentKey{agent.Owner, agent.Name}, agent)
	}
	return err
}
