package journal

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"

	"github.com/jmoiron/sqlx"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db/ledger"
	"github.com/ckptsidecar/ckptsidecar/internal/fleet"
)

// Behind counts the rows of the audit log after n, and returns when the oldest of them was written,
// in milliseconds since 1970.
func (j *Journal) Behind(ctx context.Context, n int64) (rows, oldest int64, err error) {
	err = j.core.Reading(ctx, func(q *sqlx.Tx) error {
		if err := q.GetContext(ctx, &rows, `SELECT max(0, n - ?) FROM audit_head`, n); err != nil || rows == 0 {
			return err
		}
		var at ckpt.Time
		err := q.GetContext(ctx, &at, `SELECT at FROM audit_log WHERE n > ? ORDER BY n LIMIT 1`, n)
		if errors.Is(err, sql.ErrNoRows) { // those rows are archived
			return nil
		}
		oldest = at.UnixMilli()
		return err
	})
	return rows, oldest, err
}

// Where returns the end of the audit log, and the hash of one row of it, or "" if that row is
// archived or does not exist.
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

// Owners returns the owners of all agents, by the agents' uids.
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

// Place names an agent of this host.
type Place struct {
	Owner string `db:"owner"`
	Name  string `db:"name"`
}

// Copies returns the agents that are stored here under one of the uids, or that have a run that is.
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

// Daemon is who acts if no user of this host has asked for it.
const Daemon = ledger.Daemon

const lastArchived = `SELECT coalesce(max(to_n), 0) FROM audit_archives`

// Archived is the last row of the audit log that is archived, 0 if there is none.
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
			UNION ALL SELECT a.owner, a.name, r.name, r.uid, a.policy FROM agents a JOIN runs r ON r.agent_id = a.id AND r.ago = 0`)
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
