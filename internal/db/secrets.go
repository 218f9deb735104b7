package db

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

// policyOf is the policy of an agent as it is on disk, the default where there
// is no such agent yet.
func (s *Store) policyOf(owner, agent string) ckpt.Policy {
	if row, ok := s.agents.rows.Load(agentKey{owner, agent}); ok {
		return row.(*agentRow).policy
	}
	var row agentRow
	if err := s.ro.Get(&row, selectAgent, owner, agent); err != nil {
		return ckpt.DefaultPolicy()
	}
	parsed, err := row.parsed()
	if err != nil {
		return ckpt.DefaultPolicy()
	}
	return parsed.policy
}

// searchSecrets looks for secrets in what is to be saved, outside the writer,
// and does what the agent's policy says: it may change the state or refuse it.
func (s *Store) searchSecrets(sc ckpt.Scope, r *ckpt.SaveRequest) (state []byte, found []ckpt.Secret, err error) {
	if s.opt.Secrets == nil {
		return r.State, nil, nil
	}
	isJSON := ckpt.IsJSON(r.ContentType)
	switch s.policyOf(sc.Whose(), r.Agent).Secrets {
	case ckpt.SecretsWarn:
		return r.State, s.opt.Secrets.Find(r.State, isJSON), nil
	case ckpt.SecretsRedact:
		state, found = s.opt.Secrets.Redact(r.State, isJSON)
		return state, found, nil
	case ckpt.SecretsReject:
		if found = s.opt.Secrets.Find(r.State, isJSON); len(found) > 0 {
			return nil, nil, ckpt.Errorf(ckpt.CodeInvalid, "the state holds what looks like %s at %q, and the agent's policy says secrets: reject; take it out, or set the policy to redact", found[0].Kind, found[0].Path)
		}
	}
	return r.State, nil, nil
}

// reportSecrets makes a finding for each place in which a secret was seen, once
// for a run as long as it is open.
func (s *Store) reportSecrets(tx *tx, agent *agentRow, run *runRow, w *watched, checkpoint string, found []ckpt.Secret) error {
	for _, secret := range found {
		evidence, err := json.Marshal(secret)
		if err != nil {
			return err
		}
		known := slices.ContainsFunc(w.open, func(f ckpt.Finding) bool { return f.Rule == ckpt.RuleSecret && bytes.Equal(f.Evidence, evidence) })
		if known {
			continue
		}
		f := &ckpt.Finding{Rule: ckpt.RuleSecret, Severity: ckpt.SeverityWarn, Evidence: evidence, Checkpoint: ckpt.Ref(checkpoint),
			Message: fmt.Sprintf("The state holds what looks like %s at %q. Keep secrets out of states, or set the policy's secrets to redact.", secret.Kind, secret.Path)}
		if err := s.begin(tx, agent, run, f); err != nil {
			return err
		}
		if _, err := s.note(tx, agent, run, w, f, daemonEntry(agent, "finding")); err != nil {
			return err
		}
	}
	return nil
}
