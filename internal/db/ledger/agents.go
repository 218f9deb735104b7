package ledger

import (
	"context"
	"encoding/json"
	"slices"
	"sync"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db/sqlite"
	"github.com/ckptsidecar/ckptsidecar/internal/wellformed"
)

// AgentRow is an agent as the writer needs it.
type AgentRow struct {
	ID     int64  `db:"id"`
	Owner  string `db:"owner"`
	Name   string `db:"name"`
	Policy string `db:"policy"`

	Settings ckpt.Policy
}

type AgentKey struct{ Owner, Name string }

// agentCache spares each save two look-ups. It holds committed rows alone; the
// writer, the only one who changes agents, keeps it.
type agentCache struct{ rows sync.Map } // agentKey to *agentRow

const selectAgent = `SELECT id, owner, name, policy FROM agents WHERE owner = ? AND name = ?`

// Parsed reads the stored policy over the defaults of today.
func (a *AgentRow) Parsed() (*AgentRow, error) {
	a.Settings = ckpt.DefaultPolicy()
	if err := json.Unmarshal([]byte(a.Policy), &a.Settings); err != nil {
		return nil, ckpt.Wrap(ckpt.CodeCorrupt, err, "the stored policy of agent %s is damaged: set it again", a.Name)
	}
	a.Settings.Fill()
	return a, nil
}

// Agent finds an agent of the scope in the transaction, nil where there is none.
func (s *Core) Agent(tx *Tx, owner, name string) (*AgentRow, error) {
	key := AgentKey{owner, name}
	if row, ok := tx.agents[key]; ok {
		return row, nil
	}
	if row, ok := s.agents.rows.Load(key); ok {
		return row.(*AgentRow), nil
	}
	var row AgentRow
	found, err := tx.Get(&row, selectAgent, owner, name)
	if err != nil || !found {
		return nil, err
	}
	parsed, err := row.Parsed()
	if err == nil {
		tx.OnCommit(func() { s.agents.rows.Store(key, parsed) })
	}
	return parsed, err
}

// ChangeAgent makes a changed agent seen by the rest of this transaction, and
// once it is on disk by everybody. nil is an agent that is gone.
func (s *Core) ChangeAgent(tx *Tx, key AgentKey, row *AgentRow) {
	tx.agents[key] = row
	tx.OnCommit(func() {
		if row == nil {
			s.agents.rows.Delete(key)
		} else {
			s.agents.rows.Store(key, row)
		}
	})
}

// NeedAgent is agent, and not_found where there is none.
func (s *Core) NeedAgent(tx *Tx, sc ckpt.Scope, name string) (*AgentRow, error) {
	row, err := s.Agent(tx, sc.Whose(), name)
	if err == nil && row == nil {
		return nil, noAgent(name)
	}
	return row, err
}

func noAgent(name string) error {
	return ckpt.Errorf(ckpt.CodeNotFound, "there is no agent %s here: its first save makes it", name)
}

// MakeAgent finds an agent or makes it.
func (s *Core) MakeAgent(tx *Tx, owner, name string) (*AgentRow, error) {
	row, err := s.Agent(tx, owner, name)
	if err != nil || row != nil {
		return row, err
	}
	if owner == ckpt.AllOwners {
		return nil, ckpt.Errorf(ckpt.CodeInvalid, "an agent belongs to one owner: name one, not %s", owner)
	}
	err = tx.Exec(`INSERT INTO agents (owner, name, created_at, policy_at) VALUES (?, ?, ?, ?)`, owner, name, tx.Now, tx.Now)
	if err != nil {
		return nil, err
	}
	return s.Agent(tx, owner, name)
}

// FindAgent is for reads: by the cache, else by a read connection.
func (s *Core) FindAgent(ctx context.Context, sc ckpt.Scope, name string) (*AgentRow, error) {
	if err := ckpt.CheckAgentName(name); err != nil {
		return nil, err
	}
	if row, ok := s.agents.rows.Load(AgentKey{sc.Whose(), name}); ok {
		return row.(*AgentRow), nil
	}
	var row AgentRow
	err := s.RO.GetContext(ctx, &row, selectAgent, sc.Whose(), name)
	if IsNoRows(err) {
		return nil, noAgent(name)
	}
	if err != nil {
		return nil, sqlite.ReadError(err)
	}
	return row.Parsed()
}

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

// Agents lists the scope's agents, by owner and name.
func (s *Core) Agents(ctx context.Context, sc ckpt.Scope, f ckpt.AgentFilter) (*ckpt.AgentPage, error) {
	limit, err := PageSizeOf(f.Limit)
	if err != nil {
		return nil, err
	}
	owner, name, err := readAgentCursor(f.Before)
	if err != nil {
		return nil, err
	}
	if sc.Admin && sc.Target == "" {
		sc.Target = ckpt.AllOwners // what an administrator asks of nobody in particular is about everybody
	}
	page := &ckpt.AgentPage{Agents: []ckpt.Agent{}}
	// As audit_agents has it, but only the runs of the page's agents are looked at.
	err = s.RO.SelectContext(ctx, &page.Agents, `SELECT a.name AS agent, a.owner, a.created_at, coalesce(max(r.updated_at), a.created_at) AS updated_at,
			count(r.id) AS runs, coalesce(sum(r.last_seq - r.removed), 0) AS checkpoints, coalesce(sum(r.stored_bytes), 0) AS stored_bytes
		FROM (SELECT * FROM agents WHERE (owner = ? OR ? = '*') AND (owner, name) > (?, ?) ORDER BY owner, name LIMIT ?) a
		LEFT JOIN runs r ON r.agent_id = a.id GROUP BY a.id ORDER BY a.owner, a.name`,
		sc.Whose(), sc.Whose(), owner, name, limit+1)
	if err != nil {
		return nil, sqlite.ReadError(err)
	}
	if len(page.Agents) > limit {
		page.Agents = page.Agents[:limit]
		last := page.Agents[limit-1]
		page.Next = ckpt.Ref(last.Owner + "/" + last.Agent)
	}
	if slices.ContainsFunc(page.Agents, func(a ckpt.Agent) bool { return a.Owner != sc.Caller.Owner }) {
		s.AuditForeign(sc, "list_agents", "", "")
	}
	return page, nil
}
