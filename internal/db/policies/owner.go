package policies

import (
	"context"
	"encoding/json"
	"os"
	"reflect"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db/ledger"
	"github.com/ckptsidecar/ckptsidecar/internal/db/sqlite"
)

// SetOwnerPolicy replaces an owner's policy for all agents. In the same transaction, each agent
// gets the merged policy, which is applied to its runs. The policy is refused if it conflicts with
// the own policy of one of the agents.
func (s *Policies) SetOwnerPolicy(ctx context.Context, sc ckpt.Scope, set []byte) (*ckpt.OwnerPolicySet, error) {
	owner := sc.Whose()
	if owner == ckpt.AllOwners {
		return nil, ckpt.Errorf(ckpt.CodeInvalid, "name one owner: each owner has a policy for all of its agents")
	}
	set, err := s.checkLayer(ckpt.PolicyOfOwner, set)
	if err != nil {
		return nil, err
	}
	e := ledger.Entry(sc, "set_owner_policy", "")
	var answer *ckpt.OwnerPolicySet
	err = s.core.Submit(&ledger.Op{Owner: sc.Caller.Owner, Size: int64(len(set)), Claim: sqlite.Frees, Entry: e, Do: func(tx *ledger.Tx) error {
		answer = &ckpt.OwnerPolicySet{}
		if err := s.storeLayer(tx, owner, set); err != nil {
			return err
		}
		e := e
		e.Detail = map[string]any{"policy": json.RawMessage(set)}
		if err := tx.Audit(e); err != nil {
			return err
		}
		answer.Agents, answer.Removed, err = s.mergeAnew(tx, owner, e)
		return err
	}})
	if err != nil {
		return nil, err
	}
	layers, err := s.layersIn(ctx, owner, "")
	if err != nil {
		return nil, err
	}
	answer.PolicyLayers = *layers
	return answer, nil
}

// storeLayer writes a row of the table policies. A layer that sets nothing has no row.
func (s *Policies) storeLayer(tx *ledger.Tx, owner string, set []byte) error {
	if err := tx.Exec(`DELETE FROM policies WHERE owner = ?`, owner); err != nil || string(set) == "{}" {
		return err
	}
	return tx.Insert(`INSERT INTO policies (owner, policy, set_at) VALUES (?, ?, ?)`, owner, string(set), tx.Now)
}

// mergedPolicy is the policy that counts for an agent, as its row stores it.
type mergedPolicy struct {
	settings ckpt.Policy
	text     string
}

// merging merges the policies of many agents. Most agents of an owner set the same, or nothing, and
// such policies are merged only once.
type merging struct {
	*Policies
	tx      *ledger.Tx
	daemons bool // the daemon's layer has changed
	list    []ledger.PolicyRow
	known   map[string]mergedPolicy // the owner's merged policies, by what an agent sets
}

// mergeAnew merges the policies of an owner's agents again, or of all agents with ckpt.AllOwners,
// and applies those that have changed to the agents' runs. e is the entry that records the
// removals.
func (s *Policies) mergeAnew(tx *ledger.Tx, owner string, e ledger.AuditEntry) (changed, removed int64, err error) {
	var agents []ledger.AgentRow
	if err := tx.List(&agents, `SELECT id, owner, name, policy, policy_own FROM agents WHERE owner = ?1 OR ?1 = '*'
		ORDER BY owner, name`, owner); err != nil {
		return 0, 0, err
	}
	m := &merging{Policies: s, tx: tx, daemons: owner == ckpt.AllOwners}
	for i := range agents {
		a := &agents[i]
		if i == 0 || a.Owner != agents[i-1].Owner {
			m.list, m.known = nil, map[string]mergedPolicy{}
			if err := tx.List(&m.list, ledger.SelectPolicies, ckpt.AllOwners, a.Owner); err != nil {
				return 0, 0, err
			}
		}
		now, err := m.of(a)
		if err != nil {
			return 0, 0, err
		}
		if now.text == a.Policy || sayTheSame(a, now) {
			continue
		}
		row := &ledger.AgentRow{ID: a.ID, Owner: a.Owner, Name: a.Name, Policy: now.text, Own: a.Own, Settings: now.settings}
		if err := s.core.WritePolicy(tx, row); err != nil {
			return 0, 0, err
		}
		e.Owner, e.Agent, e.Detail = a.Owner, a.Name, nil
		gone, err := s.core.RetainAll(tx, row, e)
		if err != nil {
			return 0, 0, err
		}
		changed++
		removed += int64(len(gone))
		tx.GotOn()
	}
	return changed, removed, nil
}

// sayTheSame says whether an agent's policy has the same meaning as the new one.
func sayTheSame(a *ledger.AgentRow, now mergedPolicy) bool {
	was, err := (&ledger.AgentRow{Name: a.Name, Policy: a.Policy}).Parsed()
	now.settings.Fill()
	return err == nil && reflect.DeepEqual(was.Settings, now.settings)
}

// of merges an agent's policy. The settings of one user must not keep the daemon from starting. So
// if they conflict with the daemon's layer, that agent continues without the daemon's layer.
func (m *merging) of(a *ledger.AgentRow) (mergedPolicy, error) {
	if now, ok := m.known[a.Own]; ok {
		return now, nil
	}
	p, text, err := m.core.MergePolicy(ledger.LayersOf(m.list, a.Own))
	if err != nil && m.daemons {
		m.core.Log.Warn("an agent does not use [policy] of the settings, because it conflicts with the agent's own policy",
			"owner", a.Owner, "agent", a.Name, "error", err)
		list := m.list
		if len(list) > 0 && list[0].Owner == ckpt.AllOwners {
			list = list[1:]
		}
		p, text, err = m.core.MergePolicy(ledger.LayersOf(list, a.Own))
	}
	if ckpt.CodeOf(err) == ckpt.CodeInvalid {
		err = ckpt.Errorf(ckpt.CodeConflict, "this conflicts with the own policy of agent %s: %s", a.Name, ckpt.AsError(err).Message)
	}
	if err != nil {
		return mergedPolicy{}, err
	}
	m.known[a.Own] = mergedPolicy{p, text}
	return m.known[a.Own], nil
}

// SetDaemonPolicy takes over [policy] of the daemon's settings, if it has changed since the last
// time.
func (s *Policies) SetDaemonPolicy(set []byte) error {
	if s.core.Engine.ReadOnly() != "" {
		return nil
	}
	if len(set) == 0 {
		set = []byte("{}")
	}
	set, err := s.checkLayer(ckpt.PolicyOfDaemon, set)
	if err != nil {
		return err
	}
	var there []string
	if err := s.core.RO.Select(&there, `SELECT policy FROM policies WHERE owner = ?`, ckpt.AllOwners); err != nil {
		return sqlite.ReadError(err)
	}
	if len(there) == 0 && string(set) == "{}" || len(there) == 1 && there[0] == string(set) {
		return nil
	}
	return s.core.Submit(&ledger.Op{Claim: sqlite.GoesOn, Do: func(tx *ledger.Tx) error {
		if err := s.storeLayer(tx, ckpt.AllOwners, set); err != nil {
			return err
		}
		e := ledger.AuditEntry{Who: ledger.Daemon, PID: os.Getpid(), Action: "set_daemon_policy", Outcome: ledger.OutcomeDone,
			Detail: map[string]any{"policy": json.RawMessage(set)}}
		if err := tx.Audit(e); err != nil {
			return err
		}
		_, _, err := s.mergeAnew(tx, ckpt.AllOwners, e)
		return err
	}})
}
