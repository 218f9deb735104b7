package ledger

import (
	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db/sqlite"
)

// readPolicy is the policy of an agent as it is on disk, the default where there
// is no such agent yet.
func (s *Core) readPolicy(owner, agent string) (ckpt.Policy, error) {
	if row, ok := s.agents.rows.Load(AgentKey{owner, agent}); ok {
		return row.(*AgentRow).Settings, nil
	}
	var row AgentRow
	err := s.RO.Get(&row, selectAgent, owner, agent)
	if IsNoRows(err) {
		return ckpt.DefaultPolicy(), nil
	}
	if err != nil {
		return ckpt.DefaultPolicy(), sqlite.ReadError(err)
	}
	parsed, err := row.Parsed()
	if err != nil {
		return ckpt.DefaultPolicy(), err
	}
	return parsed.Settings, nil
}

// PolicyOf is readPolicy for what only advises: without a policy it takes the default.
func (s *Core) PolicyOf(owner, agent string) ckpt.Policy {
	p, _ := s.readPolicy(owner, agent)
	return p
}

// SecretsMode is what an agent's policy says about secrets. If nobody can tell,
// that is an error: a default would store what the policy may forbid.
func (s *Core) SecretsMode(sc ckpt.Scope, agent string) (ckpt.SecretsMode, error) {
	if s.Opt.Secrets == nil {
		return ckpt.SecretsOff, nil
	}
	p, err := s.readPolicy(sc.Whose(), agent)
	return p.Secrets, err
}
