package journal

import (
	"context"
	"encoding/json"

	"github.com/jmoiron/sqlx"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db/copy"
	"github.com/ckptsidecar/ckptsidecar/internal/fleet"
)

// findAgents finds the agents whose policies a row has changed without naming the agents.
func (r *reading) findAgents(ctx context.Context, q *sqlx.Tx) error {
	for _, owner := range r.owners {
		var rows []struct {
			Owner string `db:"owner"`
			Name  string `db:"name"`
		}
		if err := q.SelectContext(ctx, &rows, `SELECT owner, name FROM agents WHERE ?2 OR owner = ?1`, owner, owner == ckpt.AllOwners); err != nil {
			return err
		}
		for _, a := range rows {
			p := place{owner: a.Owner, agent: a.Name}
			r.agents[p], r.asked[p] = true, true
		}
	}
	return nil
}

// readAgents reads the agents that rows name, and finds the runs of the agents that must be read
// whole. It hides agents that stay on this host.
func (r *reading) readAgents(ctx context.Context, q *sqlx.Tx) error {
	missing, err := r.readPresent(ctx, q)
	if err != nil {
		return err
	}
	for p := range missing {
		r.Names = append(r.Names, fleet.Name{Owner: p.owner, Agent: p.agent})
	}
	r.hideLocal()
	for p, of := range r.all {
		if err := r.readNames(ctx, q, p, of); err != nil {
			return err
		}
	}
	return nil
}

// readPresent reads the agents that rows name, and returns those that do not exist.
func (r *reading) readPresent(ctx context.Context, q *sqlx.Tx) (missing map[place]bool, err error) {
	missing = make(map[place]bool, len(r.agents))
	keys := make([][2]string, 0, len(r.agents))
	for p := range r.agents {
		missing[p], keys = true, append(keys, [2]string{p.owner, p.agent})
	}
	list, err := json.Marshal(keys)
	if err != nil || len(keys) == 0 {
		return missing, err
	}
	rows, err := q.QueryxContext(ctx, `SELECT a.id, a.uid, a.owner, a.name, a.created_at, a.policy_at, a.policy FROM json_each(?) e
		CROSS JOIN agents a ON a.owner = json_extract(e.value, '$[0]') AND a.name = json_extract(e.value, '$[1]')`, string(list))
	if err != nil {
		return missing, err
	}
	defer rows.Close()
	for rows.Next() {
		var id agentID
		var a copy.Agent
		if err := rows.Scan(&id.id, &id.uid, &a.Owner, &a.Name, &a.CreatedAt, &a.PolicyAt, &a.Policy); err != nil {
			return missing, err
		}
		delete(missing, place{owner: a.Owner, agent: a.Name})
		if err := r.addAgent(id, &a); err != nil {
			return missing, err
		}
	}
	return missing, rows.Err()
}

// addAgent adds an agent to the batch. If the agent stays on this host, the engine drops it.
func (r *reading) addAgent(id agentID, a *copy.Agent) error {
	line, err := r.journal.agents.of(a)
	if err != nil {
		return err
	}
	p := place{owner: a.Owner, agent: a.Name}
	if !line.ships(&r.choice) {
		r.local[p], id.uid = true, ""
	}
	r.Names = append(r.Names, fleet.Name{Owner: p.owner, Agent: p.agent, UID: id.uid})
	if id.uid == "" {
		return nil
	}
	id.named = line.policy != nil && TakesNames(line.policy)
	if r.ids[p] = id; r.choice.ByPolicy && r.asked[p] {
		r.all[p] = full // until now it may have stayed on this host
	}
	r.Agents = append(r.Agents, fleet.Agent{UID: id.uid, Owner: p.owner, Name: p.agent, Takeover: line.takeover, Doc: line.doc})
	return nil
}

// readNames finds the runs of an agent that must be read whole.
func (r *reading) readNames(ctx context.Context, q *sqlx.Tx, p place, of part) error {
	agent, here := r.ids[p]
	if !here {
		return nil
	}
	var names []string
	if err := q.SelectContext(ctx, &names, `SELECT name FROM runs WHERE agent_id = ? AND ago = 0`, agent.id); err != nil {
		return err
	}
	for _, name := range names {
		t := r.touch(place{p.owner, p.agent, name})
		t.whole, t.full = true, t.full || of == full
	}
	return nil
}
