package db

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/secrets"
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
// for a run as long as it is open.
func (s *Store) reportSecrets(tx *tx, agent *agentRow, run *runRow, w *watched, checkpoint string, found []secrets.Secret) error {
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
