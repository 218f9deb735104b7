package db

import (
	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db/sqlite"
)

// readPolicy is the policy of an agent as it is on disk, the default where there
// is no such agent yet.
func (s *core) readPolicy(owner, agent string) (ckpt.Policy, error) {
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
func (s *core) policyOf(owner, agent string) ckpt.Policy {
	p, _ := s.readPolicy(owner, agent)
	return p
}

// secretsMode is what an agent's policy says about secrets. If nobody can tell,
// that is an error: a default would store what the policy may forbid.
func (s *core) secretsMode(sc ckpt.Scope, agent string) (ckpt.SecretsMode, error) {
	if s.opt.Secrets == nil {
		return ckpt.SecretsOff, nil
	}
	p, err := s.readPolicy(sc.Whose(), agent)
	return p.Secrets, err
}
