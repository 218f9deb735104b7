package ledger

import (
	"context"
	"encoding/json"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db/sqlite"
	"github.com/ckptsidecar/ckptsidecar/internal/wellformed"
)

// Policy answers an agent's settings.
func (s *Core) Policy(ctx context.Context, sc ckpt.Scope, name string) (*ckpt.Policy, error) {
	s.AuditForeign(sc, "read_policy", name, "")
	row, err := s.FindAgent(ctx, sc, name)
	if err != nil {
		return nil, err
	}
	return &row.Settings, nil
}

// SetPolicy replaces an agent's settings and applies them to all of its runs
// at once, so that no invariant waits for the next round of retention. It makes
// the agent where there is none.
func (s *Core) SetPolicy(_ context.Context, sc ckpt.Scope, name string, p ckpt.Policy) (*ckpt.Policy, error) {
	if err := ckpt.CheckAgentName(name); err != nil {
		return nil, err
	}
	p.Fill()
	if err := wellformed.Policy(p); err != nil {
		return nil, err
	}
	if s.Opt.Drift != nil {
		if err := s.Opt.Drift.Check(&p); err != nil {
			return nil, err
		}
	}
	e := Entry(sc, "set_policy", name)
	text, err := json.Marshal(p)
	if err != nil {
		return nil, err
	}
	err = s.Submit(&Op{Owner: sc.Caller.Owner, Size: int64(len(text)), Claim: sqlite.Frees, Entry: e, Do: func(tx *Tx) error {
		return s.StorePolicy(tx, sc, name, p, e)
	}})
	return &p, err
}

func (s *Core) StorePolicy(tx *Tx, sc ckpt.Scope, name string, p ckpt.Policy, e AuditEntry) error {
	text, err := json.Marshal(p)
	if err != nil {
		return err
	}
	row, err := s.MakeAgent(tx, sc.Whose(), name)
	if err != nil {
		return err
	}
	err = tx.Exec(`UPDATE agents SET policy = ?, policy_at = ?, recovery_keep_s = ? WHERE id = ?`,
		string(text), tx.Now, int64(time.Duration(p.RecoveryKeep).Seconds()), row.ID)
	if err != nil {
		return err
	}
	changed := &AgentRow{ID: row.ID, Owner: row.Owner, Name: row.Name, Policy: string(text), Settings: p}
	s.ChangeAgent(tx, AgentKey{row.Owner, row.Name}, changed)
	e.Detail = map[string]any{"policy": json.RawMessage(text)}
	if err := tx.Audit(e); err != nil {
		return err
	}
	_, err = s.retainAll(tx, changed, e)
	return err
}
