package journal

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db/archive"
	"github.com/ckptsidecar/ckptsidecar/internal/db/ledger"
	"github.com/ckptsidecar/ckptsidecar/internal/fleet"
	"github.com/jmoiron/sqlx"
)

// Journal reads what was committed.
type Journal struct{ core *ledger.Core }

// New makes a Journal over a store.
func New(c *ledger.Core) *Journal { return &Journal{c} }

// Known says whether the engine has a segment of a run already.
type Known func(runUID string, segment int64) bool

// Since reads what was committed after a mark, at most limits, on one snapshot. Each
// run in it is exactly as it is on that snapshot.
func (j *Journal) Since(ctx context.Context, from fleet.Mark, limits fleet.Limits, choice Choice, known Known) (*fleet.Changes, error) {
	for {
		r := &reading{known: known, limits: limits, choice: choice}
		err := j.core.Reading(ctx, func(q *sqlx.Tx) error { return r.read(ctx, q, from) })
		switch {
		case err != nil:
			return nil, err
		case r.fewer == 0:
			return &r.Changes, nil
		}
		limits.Rows = r.fewer
	}
}

// logRow is a row of the audit log.
type logRow struct {
	N       int64          `db:"n"`
	At      ckpt.Time      `db:"at"`
	Who     string         `db:"who"`
	PID     int            `db:"pid"`
	Action  string         `db:"action"`
	Owner   sql.NullString `db:"owner"`
	Agent   sql.NullString `db:"agent"`
	Run     sql.NullString `db:"run"`
	Subject sql.NullString `db:"subject"`
	Outcome string         `db:"outcome"`
	Reason  sql.NullString `db:"reason"`
	Retries int            `db:"retries"`
	Detail  string         `db:"detail"`
	Hash    string         `db:"hash"`
}

type place struct{ owner, agent, run string }

func (p place) ofAgent() place { return place{owner: p.owner, agent: p.agent} }

// reading is one call of Since.
type reading struct {
	fleet.Changes
	known  Known
	limits fleet.Limits
	choice Choice
	runs   map[place]*touched
	order  []place
	agents map[place]bool
	local  map[place]bool // agents that stay on this host
	asked  map[place]bool // agents whose policies may have changed
	owners []string       // whose agents' policies changed all at once; ckpt.AllOwners for everybody's
	all    map[place]part // agents whose runs are all to be read, and how much of each
	first  map[place]int  // how many rows of the log come before the first that names a run
	fewer  int            // it is too much: so many rows are enough
}

func (r *reading) read(ctx context.Context, q *sqlx.Tx, from fleet.Mark) error {
	r.From, r.To = from, from
	r.runs, r.agents, r.all = map[place]*touched{}, map[place]bool{}, map[place]part{}
	r.first, r.local, r.asked = map[place]int{}, map[place]bool{}, map[place]bool{}
	if err := q.GetContext(ctx, &r.Head, `SELECT coalesce((SELECT max(n) FROM acts), (SELECT max(n) FROM audit_log_3), 0)`); err != nil {
		return err
	}
	if r.Head == from.N && len(r.choice.Also) == 0 { // this is asked ten times a second
		return nil
	}
	var rows []logRow
	err := q.SelectContext(ctx, &rows, `SELECT n, at, who, pid, action, owner, agent, run, subject, outcome, reason, retries, detail, hash FROM audit_log
		WHERE n > ? ORDER BY n LIMIT 0 + ?`, from.N, r.limits.Rows)
	if err != nil || len(rows)+len(r.choice.Also) == 0 {
		return err
	}
	for i := range rows {
		if err := r.note(&rows[i]); err != nil {
			return err
		}
	}
	if err := r.eraseStays(ctx, q); err != nil {
		return err
	}
	r.noteAlso()
	if len(rows) > 0 {
		last := &rows[len(rows)-1]
		r.To, r.Since = fleet.Mark{N: last.N, Hash: last.Hash}, rows[0].At.UnixMilli()
	}
	if r.To.N < r.Head { // rows that come later may have changed the runs too
		for _, t := range r.runs {
			t.whole = true
		}
	}
	if err := r.noteArchived(ctx, q); err != nil {
		return err
	}
	if err := r.findAgents(ctx, q); err != nil {
		return err
	}
	if err := r.readAgents(ctx, q); err != nil {
		return err
	}
	r.hideLocal()
	for i, p := range r.order {
		if before := r.first[p]; i > 0 && before > 0 && r.Size > r.limits.Bytes {
			r.fewer = before
			return nil
		}
		if r.local[p.ofAgent()] {
			continue
		}
		if err := r.readRun(ctx, q, p); err != nil {
			return err
		}
	}
	return nil
}

// note takes over a row of the log, and what it says of its run.
func (r *reading) note(row *logRow) error {
	doc, err := json.Marshal(map[string]any{"pid": row.PID, "retries": row.Retries})
	if err != nil {
		return err
	}
	shown := fleet.JournalRow{N: row.N, At: row.At.UnixMilli(), Who: row.Who, Action: row.Action, Owner: row.Owner.String,
		Agent: row.Agent.String, Run: row.Run.String,
		Outcome: row.Outcome, Doc: string(doc), Hash: row.Hash}
	said, err := json.Marshal(map[string]string{"subject": row.Subject.String, "reason": row.Reason.String, "detail": row.Detail})
	if err != nil {
		return err
	}
	texts := string(said)
	shown.Texts = &texts
	r.Journal, r.Size = append(r.Journal, shown), r.Size+int64(len(texts)+len(doc))+200
	if row.Outcome != ledger.OutcomeDone {
		return nil
	}
	switch row.Action {
	case "set_owner_policy":
		r.owners = append(r.owners, row.Owner.String)
	case "set_daemon_policy":
		r.owners = append(r.owners, ckpt.AllOwners)
	}
	if row.Agent.String == "" {
		return nil
	}
	p := place{row.Owner.String, row.Agent.String, row.Run.String}
	r.agents[p.ofAgent()] = true
	if row.Action == "set_policy" {
		r.asked[p.ofAgent()] = true
	}
	switch {
	case row.Action == "erase":
		r.Erased = append(r.Erased, fleet.Erasure{N: row.N, Owner: p.owner, Agent: p.agent, UIDs: erasedUIDs(row)})
	case partOf(row.Action) == none:
	case p.run == "" && partOf(row.Action) >= whole:
		r.all[p] = max(r.all[p], partOf(row.Action))
	case p.run != "":
		r.touch(p).touch(row)
	}
	return nil
}

// eraseStays bounds each erasure to what the erased agent was, and also erases what its
// former owners have typed for it. An owner may have had other agents of the name before,
// which were given away.
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
	// lastChange is the row with which an owner last gave an agent of a name away, or got one.
	lastChange = `SELECT coalesce(max(n), 0) FROM owner_changes
		WHERE (from_owner = ?1 OR to_owner = ?1) AND agent = ?2 AND n < ?3`
	// formerStays are the stretches of the log in which an agent that an owner has got had
	// other owners. n is the row that gave it, and after is where the owner had got it, or
	// had given another one away.
	formerStays = `WITH got AS (SELECT uid FROM owner_changes WHERE to_owner = ?1 AND agent = ?2 AND n < ?3
			AND n = (SELECT max(n) FROM owner_changes WHERE (from_owner = ?1 OR to_owner = ?1) AND agent = ?2 AND n < ?3))
		SELECT o.n + 1 AS n, o.from_owner AS owner, o.agent, coalesce((SELECT max(b.n) FROM owner_changes b
			WHERE (b.from_owner = o.from_owner OR b.to_owner = o.from_owner) AND b.agent = o.agent AND b.n < o.n), 0) AS after
		FROM owner_changes o JOIN got ON got.uid = o.uid WHERE o.n < ?3`
)

func (r *reading) touch(p place) *touched {
	t := r.runs[p]
	if t == nil {
		t = &touched{some: map[string][]string{}}
		r.runs[p] = t
		r.order = append(r.order, p)
		r.first[p] = max(0, len(r.Journal)-1)
	}
	return t
}

// findAgents finds the agents whose policies a row has changed without naming them.
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

// readAgents reads the agents that rows name, and finds the runs of those that are to
// be read as wholes.
func (r *reading) readAgents(ctx context.Context, q *sqlx.Tx) error {
	for p := range r.agents {
		var a struct {
			ID     int64  `db:"id"`
			UID    string `db:"uid"`
			Policy string `db:"policy"`
		}
		err := q.GetContext(ctx, &a, `SELECT id, uid, policy FROM agents WHERE owner = ? AND name = ?`, p.owner, p.agent)
		if err != nil && !errors.Is(err, sql.ErrNoRows) {
			return err
		}
		if a.ID != 0 && !r.choice.shipsStored(a.Policy) {
			r.local[p], a.UID = true, "" // the engine lets go of what it had of it
		}
		r.Names = append(r.Names, fleet.Name{Owner: p.owner, Agent: p.agent, UID: a.UID})
		if a.UID == "" {
			continue
		}
		if r.choice.ByPolicy && r.asked[p] {
			r.all[p] = full // until now it may have stayed on this host
		}
		doc, err := archive.AgentText(ctx, q, a.ID)
		if err != nil {
			return err
		}
		r.Agents = append(r.Agents, fleet.Agent{UID: a.UID, Owner: p.owner, Name: p.agent, Takeover: takeoverOf(a.Policy), Doc: doc})
		if r.all[p] == none {
			continue
		}
		var names []string
		if err := q.SelectContext(ctx, &names, `SELECT name FROM runs WHERE agent_id = ?`, a.ID); err != nil {
			return err
		}
		for _, name := range names {
			t := r.touch(place{p.owner, p.agent, name})
			t.whole, t.full = true, t.full || r.all[p] == full
		}
	}
	return nil
}

// takeoverOf is who may bring an agent's runs to another host. Where its policy cannot be
// read, a person must.
func takeoverOf(policy string) string {
	row, err := (&ledger.AgentRow{Policy: policy}).Parsed()
	if err != nil {
		return string(ckpt.TakeoverManual)
	}
	return string(row.Settings.Takeover)
}

// Behind counts the rows of the audit log after n, and answers when the oldest of them
// was written, in milliseconds since 1970.
func (j *Journal) Behind(ctx context.Context, n int64) (rows, oldest int64, err error) {
	err = j.core.Reading(ctx, func(q *sqlx.Tx) error {
		if err := q.GetContext(ctx, &rows, `SELECT max(0, n - ?) FROM audit_head`, n); err != nil || rows == 0 {
			return err
		}
		var at ckpt.Time
		err := q.GetContext(ctx, &at, `SELECT at FROM audit_log WHERE n > ? ORDER BY n LIMIT 1`, n)
		if errors.Is(err, sql.ErrNoRows) { // they are archived
			return nil
		}
		oldest = at.UnixMilli()
		return err
	})
	return rows, oldest, err
}

// Where answers the end of the audit log, and the hash of one row of it: "" where that
// row is archived, or is none.
func (j *Journal) Where(ctx context.Context, n int64) (head fleet.Mark, hash string, err error) {
	err = j.core.Reading(ctx, func(q *sqlx.Tx) error {
		if err := q.QueryRowxContext(ctx, `SELECT n, hash FROM audit_head`).Scan(&head.N, &head.Hash); err != nil {
			return err
		}
		var found sql.NullString
		err := q.QueryRowxContext(ctx, `SELECT `+ledger.HashOf(`?1`), n).Scan(&found)
		hash = found.String
		return err
	})
	return head, hash, err
}

// Owners are the owners of all agents, by the agents' uids.
func (j *Journal) Owners(ctx context.Context) (map[string]string, error) {
	var rows []struct {
		UID   string `db:"uid"`
		Owner string `db:"owner"`
	}
	err := j.core.Reading(ctx, func(q *sqlx.Tx) error { return q.SelectContext(ctx, &rows, `SELECT uid, owner FROM agents`) })
	all := make(map[string]string, len(rows))
	for _, a := range rows {
		all[a.UID] = a.Owner
	}
	return all, err
}

// erasedUIDs are the uids of what a row says was erased. The daemon itself only follows
// the erasure of another host: that is not told on.
func erasedUIDs(row *logRow) []string {
	var d struct {
		UIDs []string `json:"uids"`
	}
	if row.Who == ledger.Daemon || json.Unmarshal([]byte(row.Detail), &d) != nil {
		return nil
	}
	return d.UIDs
}

// Place is an agent of this host.
type Place struct {
	Owner string `db:"owner"`
	Name  string `db:"name"`
}

// Copies are the agents that are stored here under one of some uids, or have a run that
// is.
func (j *Journal) Copies(ctx context.Context, uids []string) (all []Place, err error) {
	list, err := json.Marshal(uids)
	if err != nil {
		return nil, err
	}
	err = j.core.Reading(ctx, func(q *sqlx.Tx) error {
		return q.SelectContext(ctx, &all, `SELECT owner, name FROM agents WHERE uid IN (SELECT value FROM json_each(?1))
			UNION SELECT a.owner, a.name FROM agents a JOIN runs r ON r.agent_id = a.id WHERE r.uid IN (SELECT value FROM json_each(?1))`, string(list))
	})
	return all, err
}

// Daemon is who does what no user of this host has asked for.
const Daemon = ledger.Daemon
