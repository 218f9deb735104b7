package db

import (
	"encoding/json"
	"fmt"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/google/uuid"
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
// for a run as long as nobody dismisses it.
func (tx *tx) reportSecrets(run *runRow, checkpoint string, found []ckpt.Secret) error {
	for _, secret := range found {
		evidence, err := json.Marshal(secret)
		if err != nil {
			return err
		}
		var known bool
		_, err = tx.get(&known, `SELECT EXISTS (SELECT 1 FROM findings WHERE run_id = ? AND rule = 'secret' AND evidence = ? AND dismissed_at IS NULL)`, run.ID, string(evidence))
		if err != nil {
			return err
		}
		if known {
			continue
		}
		id, err := uuid.NewV7()
		if err != nil {
			return err
		}
		message := fmt.Sprintf("The state holds what looks like %s at %q. Keep secrets out of states, or set the policy's secrets to redact.", secret.Kind, secret.Path)
		err = tx.exec(`INSERT INTO findings (id, run_id, at, rule, severity, message, evidence, checkpoint) VALUES (?, ?, ?, 'secret', 'warn', ?, ?, ?)`,
			id.String(), run.ID, tx.now, message, string(evidence), checkpoint)
		if err != nil {
			return err
		}
	}
	return nil
}
