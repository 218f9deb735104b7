package journal

import (
	"context"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db/ledger"
	"github.com/ckptsidecar/ckptsidecar/internal/fleet"
	"github.com/jmoiron/sqlx"
)

// Choice says what is read for the engine.
type Choice struct {
	ByPolicy bool         // only agents whose policies ask for the fleet
	Also     []fleet.Name // agents, and runs as wholes, that are read although no row names them
}

// Ships says whether agents with a policy are shipped: those whose writes wait for the
// engine, or whose runs go on elsewhere by themselves.
func (c *Choice) Ships(p *ckpt.Policy) bool {
	return !c.ByPolicy || p.Durability == ckpt.DurabilityFleet || p.Takeover == ckpt.TakeoverAuto
}

// shipsStored says it of a stored policy. An agent whose policy cannot be read is shipped,
// because the engine may have it already.
func (c *Choice) shipsStored(policy string) bool {
	row, err := (&ledger.AgentRow{Policy: policy}).Parsed()
	return err != nil || c.Ships(&row.Settings)
}

// noteAlso notes what is to be read although no row names it.
func (r *reading) noteAlso() {
	for _, n := range r.choice.Also {
		p := place{n.Owner, n.Agent, n.Run}
		r.agents[p.ofAgent()] = true
		if n.Run != "" {
			t := r.touch(p)
			t.whole, t.full = true, true
		}
	}
}

// hideLocal takes the names and the texts of agents that stay on this host out of the
// rows of the log. The rows themselves are shipped, because each hashes the one before.
func (r *reading) hideLocal() {
	for i := range r.Journal {
		row := &r.Journal[i]
		if r.local[place{owner: row.Owner, agent: row.Agent}] {
			row.Agent, row.Run, row.Texts = "", "", nil
		}
	}
}

const lastArchived = `SELECT coalesce(max(to_n), 0) FROM audit_archives`

// noteArchived lets all runs be read as wholes where rows after the mark are archived: nobody
// knows what they said.
func (r *reading) noteArchived() {
	if r.archived <= r.From.N {
		return
	}
	for _, t := range r.runs {
		t.whole, t.full = true, true
	}
}

// Archived is the last row of the audit log that is archived, 0 for none.
func (j *Journal) Archived(ctx context.Context) (n int64, err error) {
	err = j.core.Reading(ctx, func(q *sqlx.Tx) error { return q.GetContext(ctx, &n, lastArchived) })
	return n, err
}

// Here lists, with their uids, the runs that are shipped and the agents that are not.
func (j *Journal) Here(ctx context.Context, choice Choice) (runs, local []fleet.Name, err error) {
	var rows []struct {
		Owner  string `db:"owner"`
		Agent  string `db:"agent"`
		Run    string `db:"run"`
		UID    string `db:"uid"`
		Policy string `db:"policy"`
	}
	err = j.core.Reading(ctx, func(q *sqlx.Tx) error {
		return q.SelectContext(ctx, &rows, `SELECT a.owner, a.name AS agent, '' AS run, a.uid, a.policy FROM agents a
			UNION ALL SELECT a.owner, a.name, r.name, r.uid, a.policy FROM agents a JOIN runs r ON r.agent_id = a.id`)
	})
	for _, row := range rows {
		name := fleet.Name{Owner: row.Owner, Agent: row.Agent, Run: row.Run, UID: row.UID}
		switch ships := choice.shipsStored(row.Policy); {
		case ships && row.Run != "":
			runs = append(runs, name)
		case !ships && row.Run == "":
			local = append(local, name)
		}
	}
	return runs, local, err
}
