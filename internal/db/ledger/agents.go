package ledger

import (
	"context"
	"slices"
	"strings"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db/sqlite"
)

// Agent finds an agent of the scope in the transaction, nil if there is none.
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

// ChangeAgent makes a changed agent visible to the rest of this transaction, and to all callers
// once it is on disk. nil means that the agent is gone.
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

// NeedAgent is Agent, but returns not_found if there is none.
func (s *Core) NeedAgent(tx *Tx, sc ckpt.Scope, name string) (*AgentRow, error) {
	row, err := s.Agent(tx, sc.Whose(), name)
	if err == nil && row == nil {
		return nil, s.noAgent(tx.Ctx, sc, name)
	}
	return row, err
}

// noAgent is the error for an agent that does not exist. It tells an administrator which owners
// have an agent of that name: after a move to another machine, an agent may belong to its old user
// id.
func (s *Core) noAgent(ctx context.Context, sc ckpt.Scope, name string) error {
	var owners []string
	if sc.Target == "" && sc.Admin {
		const named = `SELECT owner FROM agents WHERE name = ? ORDER BY owner LIMIT 0 + ?`
		if err := s.RO.SelectContext(ctx, &owners, named, name, ownersNamed); err != nil {
			owners = nil // then the error says only that the agent is missing
		}
	}
	if len(owners) == 0 {
		var names []string
		if s.RO.SelectContext(ctx, &names, `SELECT name FROM agents WHERE owner = ? ORDER BY name LIMIT 0 + ?`, sc.Whose(), agentsCompared) == nil {
			if near := nearest(name, names); near != "" {
				return ckpt.Errorf(ckpt.CodeNotFound, "there is no agent %s, did you mean %s? The first save of an agent creates it", name, near)
			}
		}
		return ckpt.Errorf(ckpt.CodeNotFound, "there is no agent %s: its first save creates it", name)
	}
	return ckpt.Errorf(ckpt.CodeNotFound,
		"you have no agent %s, but %s has one: name the owner, for example with --owner %s, "+
			"or take it over with ckptsidecar chown %[3]s %[4]s --agent %[1]s",
		name, strings.Join(owners, " and "), owners[0], sc.Caller.Owner)
}

const (
	ownersNamed    = 3    // how many owners the error names
	agentsCompared = 1000 // how many names of agents a wrong name is compared with
)

// nearest returns the name that differs from a wrong one in the fewest characters, at most two, and "" if there is none.
func nearest(wrong string, names []string) (near string) {
	least := min(2, len(wrong)/2) + 1
	for _, name := range names {
		if d := distance(wrong, name); d < least {
			near, least = name, d
		}
	}
	return near
}

// distance counts the bytes that must be put in, taken out or replaced to turn one text into another.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		before := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := before
			if a[i] != b[j] {
				cost++
			}
			before, row[j+1] = row[j+1], min(cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
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
	if err := s.InsertAgent(tx, owner, name, "", tx.Now, "{}", "{}", tx.Now, ckpt.Policy{}); err != nil {
		return nil, err
	}
	return s.Agent(tx, owner, name)
}

// FindAgent is for reads. It looks in the cache, then uses a read connection.
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
		return nil, s.noAgent(ctx, sc, name)
	}
	if err != nil {
		return nil, sqlite.ReadError(err)
	}
	return row.Parsed()
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
		sc.Target = ckpt.AllOwners // a request of an administrator without an owner is about all owners
	}
	page := &ckpt.AgentPage{Agents: []ckpt.Agent{}}
	// The same as audit_agents, but it reads only the runs of the page's agents.
	err = s.RO.SelectContext(ctx, &page.Agents, `SELECT a.name AS agent, a.owner, a.created_at,
			coalesce(max(r.updated_at), a.created_at) AS updated_at,
			count(r.id) AS runs, coalesce(sum(r.last_seq - r.removed), 0) AS checkpoints, coalesce(sum(r.stored_bytes), 0) AS stored_bytes,
			(SELECT coalesce(sum(length(data)), 0) FROM contents c WHERE c.agent_id = a.id) AS files_bytes,
			CASE WHEN ? THEN (SELECT coalesce(sum(c.size), 0) FROM runs o
				CROSS JOIN checkpoints c ON c.slot > o.id << 32 AND c.slot <= (o.id + 1) << 32
				WHERE o.agent_id = a.id) END AS state_bytes
		FROM (SELECT * FROM agents WHERE (owner = ? OR ? = '*') AND (owner, name) > (?, ?) ORDER BY owner, name LIMIT 0 + ?) a
		LEFT JOIN runs r ON r.agent_id = a.id GROUP BY a.id ORDER BY a.owner, a.name`,
		f.States, sc.Whose(), sc.Whose(), owner, name, limit+1)
	if err != nil {
		return nil, sqlite.ReadError(err)
	}
	if len(page.Agents) > limit {
		page.Agents = page.Agents[:limit]
		last := page.Agents[limit-1]
		page.Next = ckpt.Ref(last.Owner + "/" + last.Agent)
	}
	if slices.ContainsFunc(page.Agents, func(a ckpt.Agent) bool { return a.Owner != sc.Caller.Owner }) {
		s.AuditRead(sc, "list_agents", "", "")
	}
	return page, nil
}

// readPolicy is the policy of an agent as it is on disk, or its owner's policy for all agents if
// the agent does not exist yet. With an error, it is the default. The caller must not change it.
func (s *Core) readPolicy(owner, agent string) (*ckpt.Policy, error) {
	if row, ok := s.agents.rows.Load(AgentKey{owner, agent}); ok {
		return &row.(*AgentRow).Settings, nil
	}
	p, err := s.readStoredPolicy(owner, agent)
	return &p, err
}

func (s *Core) readStoredPolicy(owner, agent string) (ckpt.Policy, error) {
	var row AgentRow
	err := s.RO.Get(&row, selectAgent, owner, agent)
	if IsNoRows(err) {
		return s.readBasePolicy(owner)
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

// PolicyOf is readPolicy for decisions that only advise: without a policy it returns the default.
func (s *Core) PolicyOf(owner, agent string) ckpt.Policy {
	p, _ := s.readPolicy(owner, agent)
	return *p
}

// FleetPolicyOf is the policy of an agent, for its settings about the fleet. It returns an error if
// the policy cannot be read: a default would promise less than the policy does. The caller must not
// change it.
func (s *Core) FleetPolicyOf(owner, agent string) (*ckpt.Policy, error) {
	return s.readPolicy(owner, agent)
}

// SecretsMode is what an agent's policy says about secrets. It returns an error if the policy
// cannot be read: a default would store what the policy may forbid.
func (s *Core) SecretsMode(sc ckpt.Scope, agent string) (ckpt.SecretsMode, error) {
	if s.Opt.Secrets == nil {
		return ckpt.SecretsOff, nil
	}
	p, err := s.readPolicy(sc.Whose(), agent)
	return p.Secrets, err
}
