package journal

import (
	"context"
	"encoding/json"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db/ledger"
	"github.com/ckptsidecar/ckptsidecar/internal/fleet"
	"github.com/jmoiron/sqlx"
)

// readLog reads the rows of the log after the mark, and notes what they say. It returns the number
// of rows.
func (r *reading) readLog(ctx context.Context, q *sqlx.Tx) (n int, err error) {
	rows, err := q.QueryxContext(ctx, `SELECT n, at, who, pid, action, owner, agent, run, subject, outcome, reason, retries, detail, hash FROM audit_log
		WHERE n > ? ORDER BY n LIMIT 0 + ?`, r.From.N, r.limits.Rows)
	if err != nil {
		return 0, err
	}
	defer rows.Close()
	for rows.Next() {
		var l logRow
		if err := rows.Scan(&l.n, &l.at, &l.who, &l.pid, &l.action, &l.owner, &l.agent, &l.run, &l.subject, &l.outcome, &l.reason,
			&l.retries, &l.detail, &l.hash); err != nil {
			return n, err
		}
		if err := r.note(&l); err != nil {
			return n, err
		}
		if n++; n == 1 {
			r.Since = l.at.UnixMilli()
		}
		r.To = fleet.Mark{N: l.n, Hash: l.hash}
	}
	return n, rows.Err()
}

// The documents that the engine has of a row of the log besides its columns.
type (
	logDoc struct {
		PID     int `json:"pid"`
		Retries int `json:"retries"`
	}
	logTexts struct {
		Detail  string `json:"detail"`
		Reason  string `json:"reason"`
		Subject string `json:"subject"`
	}
)

// note adds a row of the log to the batch, and notes what the row says about its run.
func (r *reading) note(row *logRow) error {
	doc, err := json.Marshal(logDoc{row.pid, row.retries})
	if err != nil {
		return err
	}
	said, err := json.Marshal(logTexts{row.detail, row.reason.String, row.subject.String})
	if err != nil {
		return err
	}
	texts := string(said)
	r.Journal = append(r.Journal, fleet.JournalRow{N: row.n, At: row.at.UnixMilli(), Who: row.who, Action: row.action, Owner: row.owner.String,
		Agent: row.agent.String, Run: row.run.String, Outcome: row.outcome, Doc: string(doc), Texts: &texts, Hash: row.hash})
	r.Size += int64(len(texts)+len(doc)) + 200
	if r.choice.ByPolicy && row.agent.String != "" { // hideLocal must know the agent, also of a row about what was refused
		r.agents[place{owner: row.owner.String, agent: row.agent.String}] = true
	}
	if row.outcome == ledger.OutcomeDone {
		r.noteDone(row)
	}
	return nil
}

// noteDone notes what a row of the log has changed.
func (r *reading) noteDone(row *logRow) {
	switch row.action {
	case "set_owner_policy":
		r.owners = append(r.owners, row.owner.String)
	case "set_daemon_policy":
		r.owners = append(r.owners, ckpt.AllOwners)
	}
	if row.agent.String == "" {
		return
	}
	p := place{row.owner.String, row.agent.String, row.run.String}
	r.agents[p.ofAgent()] = true
	if row.action == "set_policy" {
		r.asked[p.ofAgent()] = true
	}
	switch {
	case row.action == "erase":
		r.Erased = append(r.Erased, fleet.Erasure{N: row.n, Owner: p.owner, Agent: p.agent, UIDs: erasedUIDs(row)})
	case partOf(row.action) == none:
	case p.run == "" && partOf(row.action) >= whole:
		r.all[p] = max(r.all[p], partOf(row.action))
	case p.run != "":
		r.touch(p).touch(row)
	}
}

// eraseStays limits each erasure to the time in which the erased agent had its name, and also
// erases the texts that its former owners have typed for it. An owner may have had earlier agents
// of that name, which were given away.
func (r *reading) eraseStays(ctx context.Context, q *sqlx.Tx) error {
	var all []fleet.Erasure
	for _, e := range r.Erased {
		var former []fleet.Erasure
		if err := q.SelectContext(ctx, &former, formerStays, e.Owner, e.Agent, e.N); err != nil {
			return err
		}
		if err := q.GetContext(ctx, &e.After, lastChange, e.Owner, e.Agent, e.N); err != nil {
			return err
		}
		all = append(append(all, e), former...)
	}
	r.Erased = all
	return nil
}

const (
	// lastChange is the last row with which an owner gave an agent of a name away, or got one.
	lastChange = `SELECT coalesce(max(n), 0) FROM owner_changes
		WHERE (from_owner = ?1 OR to_owner = ?1) AND agent = ?2 AND n < ?3`
	// formerStays are the ranges of the log in which an agent that an owner has got had other
	// owners. n is the row after the one that gave it away. after is the row in which that owner
	// had got it, or had given another agent away.
	formerStays = `WITH got AS (SELECT uid FROM owner_changes WHERE to_owner = ?1 AND agent = ?2 AND n < ?3
			AND n = (SELECT max(n) FROM owner_changes WHERE (from_owner = ?1 OR to_owner = ?1) AND agent = ?2 AND n < ?3))
		SELECT o.n + 1 AS n, o.from_owner AS owner, o.agent, coalesce((SELECT max(b.n) FROM owner_changes b
			WHERE (b.from_owner = o.from_owner OR b.to_owner = o.from_owner) AND b.agent = o.agent AND b.n < o.n), 0) AS after
		FROM owner_changes o JOIN got ON got.uid = o.uid WHERE o.n < ?3`
)

// erasedUIDs are the uids that a row says were erased. If the daemon itself is the actor, it only
// follows the erasure of another host, which is not passed on.
func erasedUIDs(row *logRow) []string {
	var d struct {
		UIDs []string `json:"uids"`
	}
	if row.who == ledger.Daemon || json.Unmarshal([]byte(row.detail), &d) != nil {
		return nil
	}
	return d.UIDs
}

// readGone finds the checkpoints that rows of the batch say were removed.
func (r *reading) readGone(ctx context.Context, q *sqlx.Tx) error {
	rows, err := q.QueryxContext(ctx, `SELECT p.owner, p.agent, p.run, a.gone FROM acts a JOIN places p ON p.id = a.place
		WHERE a.n > ?1 AND a.n <= ?2 AND a.gone IS NOT NULL
		UNION ALL SELECT p.owner, p.agent, p.run, json_extract(e.value, '$[0]') FROM acts a JOIN places p ON p.id = a.place,
		json_each(a.more, '$.removed') e WHERE a.n > ?1 AND a.n <= ?2 AND a.more IS NOT NULL`, r.From.N, r.To.N)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var p place
		var n int64
		if err := rows.Scan(&p.owner, &p.agent, &p.run, &n); err != nil {
			return err
		}
		r.gone[p] = append(r.gone[p], n)
	}
	return rows.Err()
}
