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
