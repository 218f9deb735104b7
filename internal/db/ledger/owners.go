package ledger

import ckpt "github.com/ckptsidecar/ckptsidecar"

// Given is an agent that gets another owner.
type Given struct {
	AgentRow
	UID string `db:"uid"`
}

// stays are the ranges of audit log rows about an agent: each range, after one row and up to
// another, is under the name of one of its owners. ?1 is the agent's number, ?2 its owner and ?3
// its name. An earlier agent of the same owner and name may have been given away.
const stays = `(SELECT o.from_owner AS owner, coalesce((SELECT max(b.n) FROM owner_changes b WHERE b.agent_id = o.agent_id AND b.n < o.n),
		(SELECT max(b.n) FROM owner_changes b WHERE b.from_owner = o.from_owner AND b.agent = o.agent AND b.n < o.n), 0) AS after, o.n AS upto
	FROM owner_changes o WHERE o.agent_id = ?1
	UNION ALL SELECT ?2, coalesce((SELECT max(n) FROM owner_changes WHERE agent_id = ?1), (SELECT max(n) FROM owner_changes
	WHERE from_owner = ?2 AND agent = ?3), 0), 1 << 62)`

// GiveAgent gives an agent to another owner, with all rows that are stored under its owner's name.
// The audit log stays as it is: two new rows say from which row on the new owner's name counts. e
// says who does it and why.
func (s *Core) GiveAgent(tx *Tx, agent *Given, to string, e AuditEntry) error {
	from := agent.Owner
	own, err := s.ownAt(tx, agent, to)
	if err != nil {
		return err
	}
	err = tx.Insert(`INSERT INTO owner_changes (agent_id, n, uid, agent, from_owner, to_owner) VALUES (?, ?, ?, ?, ?, ?)`,
		agent.ID, tx.Head.N+1, agent.UID, agent.Name, from, to)
	if err != nil {
		return err
	}
	for _, statement := range []string{
		`UPDATE agents SET owner = ?3 WHERE id = ?1 AND owner = ?2`,
		`UPDATE event_batches SET owner = ?3 WHERE owner = ?2 AND run_id IN (SELECT id FROM runs WHERE agent_id = ?1)`,
		// If the new owner has sent the same span, the span keeps its old owner, and is removed
		// with its run.
		`UPDATE spans SET owner = ?3 WHERE owner = ?2 AND run_id IN (SELECT id FROM runs WHERE agent_id = ?1)
			AND NOT EXISTS (SELECT 1 FROM spans o WHERE o.owner = ?3 AND o.trace = spans.trace AND o.span = spans.span)`,
		// The notices' texts stay as they were. Erasing the agent finds the notices by its owner.
		`UPDATE notices SET owner = ?3 WHERE owner = ?2 AND agent = (SELECT name FROM agents WHERE id = ?1)`,
	} {
		if err := tx.Exec(statement, agent.ID, from, to); err != nil {
			return err
		}
	}
	e.Subject, e.Agent, e.Run = agent.UID, agent.Name, ""
	e.Action, e.Owner, e.Detail = "give_agent", from, map[string]any{"to": to}
	if err := tx.Audit(e); err != nil {
		return err
	}
	e.Action, e.Owner, e.Detail = "receive_agent", to, map[string]any{"from": from}
	if err := tx.Audit(e); err != nil {
		return err
	}
	s.ChangeAgent(tx, AgentKey{from, agent.Name}, nil)
	row := agent.AgentRow
	row.Owner, row.Own = to, own
	if own != agent.Own {
		return s.WritePolicy(tx, &row)
	}
	s.ChangeAgent(tx, AgentKey{to, row.Name}, &row)
	return nil
}

// ownAt is the policy that an agent must set itself so that its effective policy stays the same
// with another owner, whose own policy for all agents may differ.
func (s *Core) ownAt(tx *Tx, agent *Given, to string) (string, error) {
	var same bool
	_, err := tx.Get(&same, `SELECT (SELECT policy FROM policies WHERE owner = ?1)
		IS (SELECT policy FROM policies WHERE owner = ?2)`, agent.Owner, to)
	if err != nil || same {
		return agent.Own, err
	}
	own, err := s.PolicyOver(tx, to, []byte(agent.Policy))
	return string(own), err
}

// OwnerHas is one checkpoint of an agent whose id a checkpoint of another owner also has, "" if
// there is none. No two checkpoints of an owner have the same id.
func (tx *Tx) OwnerHas(agentID int64, owner string) (id ckpt.Ref, err error) {
	_, err = tx.Get(&id, `SELECT c.id FROM runs r CROSS JOIN checkpoints c ON c.run_id = r.id
		WHERE r.agent_id = ?1 AND EXISTS (SELECT 1 FROM checkpoints d JOIN runs o ON o.id = d.run_id JOIN agents a ON a.id = o.agent_id
		WHERE d.id = c.id AND a.owner = ?2) LIMIT 1`,
		agentID, owner)
	return id, err
}
