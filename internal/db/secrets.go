package db

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"slices"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db/sqlite"
	"github.com/ckptsidecar/ckptsidecar/internal/secrets"
)

// readPolicy is the policy of an agent as it is on disk, the default where there
// is no such agent yet.
func (s *Store) readPolicy(owner, agent string) (ckpt.Policy, error) {
	if row, ok := s.agents.rows.Load(agentKey{owner, agent}); ok {
		return row.(*agentRow).policy, nil
	}
	var row agentRow
	err := s.ro.Get(&row, selectAgent, owner, agent)
	if isNoRows(err) {
		return ckpt.DefaultPolicy(), nil
	}
	if err != nil {
		return ckpt.DefaultPolicy(), sqlite.ReadError(err)
	}
	parsed, err := row.parsed()
	if err != nil {
		return ckpt.DefaultPolicy(), err
	}
	return parsed.policy, nil
}

// policyOf is readPolicy for what only advises: without a policy it takes the default.
func (s *Store) policyOf(owner, agent string) ckpt.Policy {
	p, _ := s.readPolicy(owner, agent)
	return p
}

// secretsMode is what an agent's policy says about secrets. If nobody can tell,
// that is an error: a default would store what the policy may forbid.
func (s *Store) secretsMode(sc ckpt.Scope, agent string) (ckpt.SecretsMode, error) {
	if s.opt.Secrets == nil {
		return ckpt.SecretsOff, nil
	}
	p, err := s.readPolicy(sc.Whose(), agent)
	return p.Secrets, err
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
			Message: fmt.Sprintf("The %s holds what looks like %s at %q. Keep secrets out, or set the policy's secrets to redact.", cmp.Or(secret.In, "state"), secret.Kind, secret.Path)}
		if err := s.begin(tx, agent, run, f); err != nil {
			return err
		}
		if _, err := s.note(tx, agent, run, w, f, daemonEntry(agent, "finding")); err != nil {
			return err
		}
	}
	return nil
}
