package audit

import (
	"context"
	"database/sql"
	"encoding/json"

	"github.com/jmoiron/sqlx"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db/ledger"
)

// What the audit log says of runs and steps. A run's status and epoch are in the rows of the acts that change them, and its head is
// the checkpoint that it saved last. A step's row has hashes of its arguments, its result and its error. An import, a backup
// that was put back, and the engine of a fleet bring rows without such acts: what came in this way is not compared.

// actsOfPlace are the newest acts about one run, or about one agent if the run is "".
type actsOfPlace struct {
	Owner    string `db:"owner"`
	Agent    string `db:"agent"`
	Run      string `db:"run"`
	Stated   int64  `db:"stated"`   // has the run's status and epoch
	Saved    int64  `db:"saved"`    // a save
	Other    int64  `db:"other"`    // may have moved the head otherwise
	Imported int64  `db:"imported"` // brought rows
	Newest   int64  `db:"newest"`
}

const selectActsOfPlaces = `SELECT p.owner, p.agent, p.run, max(a.n) AS newest,
	coalesce(max(a.n) FILTER (WHERE json_extract(t.detail, '$.run_epoch') IS NOT NULL), 0) AS stated,
	coalesce(max(a.n) FILTER (WHERE a.action = 'save'), 0) AS saved,
	coalesce(max(a.n) FILTER (WHERE a.action NOT IN ('save', 'begin_step', 'finish_step', 'append_events', 'change', 'begin_operation', 'end_operation',
		'interrupt_run', 'end_run', 'ask_question', 'remove', 'delete', 'clear_run')), 0) AS other,
	coalesce(max(a.n) FILTER (WHERE a.action = 'import'), 0) AS imported
	FROM acts a JOIN places p ON p.id = a.place LEFT JOIN act_texts t ON t.n = a.n
	WHERE a.outcome IS NULL GROUP BY a.place`

type place struct{ owner, agent, run string }

// log is what the audit log says of all runs, read on one snapshot with the rows that it is compared with.
type log struct {
	v     *verifier
	q     *sqlx.Tx
	acts  map[place]actsOfPlace
	given map[int64][]given // former owners of agents, newest first
	loose bool              // epochs may be higher than the acts say
}

func (v *verifier) withLog(ctx context.Context, compare func(*log) error) error {
	q, err := v.db.BeginTxx(ctx, &sql.TxOptions{ReadOnly: true})
	if err != nil {
		return v.met(ctx, "runs", err)
	}
	defer q.Rollback()
	l := &log{v: v, q: q, acts: map[place]actsOfPlace{}, given: map[int64][]given{}}
	var rows []actsOfPlace
	if err := q.SelectContext(ctx, &rows, selectActsOfPlaces); err != nil {
		return v.met(ctx, "acts", err)
	}
	for _, row := range rows {
		l.acts[place{row.Owner, row.Agent, row.Run}] = row
	}
	var changes []struct {
		AgentID int64 `db:"agent_id"`
		given
	}
	err = q.SelectContext(ctx, &changes, `SELECT agent_id, n, agent, from_owner, to_owner FROM owner_changes ORDER BY n DESC`)
	if err != nil {
		return v.met(ctx, "owner_changes", err)
	}
	for _, c := range changes {
		l.given[c.AgentID] = append(l.given[c.AgentID], c.given)
	}
	err = q.GetContext(ctx, &l.loose, `SELECT EXISTS (SELECT 1 FROM acts a WHERE a.action = 'restore_backup')`)
	if err != nil {
		return v.met(ctx, "meta", err)
	}
	return v.met(ctx, "runs", compare(l))
}

// of returns the newest acts about a run of an agent, under each of the names of its owners.
func (l *log) of(agentID int64, owner, agent, run string) actsOfPlace {
	all := l.acts[place{owner, agent, run}]
	for _, g := range l.given[agentID] {
		if before := l.acts[place{g.From, agent, run}]; before.Newest <= g.N { // otherwise it is about another agent, begun anew
			all.Stated, all.Saved = max(all.Stated, before.Stated), max(all.Saved, before.Saved)
			all.Other, all.Imported = max(all.Other, before.Other), max(all.Imported, before.Imported)
		}
	}
	return all
}

func (l *log) imported(agentID int64, owner, agent, run string) int64 {
	return max(l.of(agentID, owner, agent, run).Imported, l.of(agentID, owner, agent, "").Imported)
}

// runs compares the status, the epoch and the head of each run with the acts that set them.
func (v *verifier) runs(ctx context.Context) error {
	return v.withLog(ctx, func(l *log) error {
		var rows []struct {
			ID      int64          `db:"id"`
			AgentID int64          `db:"agent_id"`
			Owner   string         `db:"owner"`
			Agent   string         `db:"agent"`
			Run     string         `db:"run"`
			Status  ckpt.RunStatus `db:"status"`
			Epoch   int64          `db:"epoch"`
			Head    ckpt.Ref       `db:"head"`
			Seen    bool           `db:"seen"` // only observed, so nobody says how it is
		}
		err := l.q.SelectContext(ctx, &rows, `SELECT r.id, r.agent_id, a.owner, a.name AS agent, r.name AS run, r.status, r.epoch, r.head,
			r.source IS NOT NULL AS seen FROM runs r JOIN agents a ON a.id = r.agent_id`)
		if err != nil {
			return err
		}
		for i := range rows {
			r := &rows[i]
			acts := l.of(r.AgentID, r.Owner, r.Agent, r.Run)
			imported := l.imported(r.AgentID, r.Owner, r.Agent, r.Run)
			name := r.Agent + "/" + r.Run
			if acts.Stated > imported {
				var detail string
				if err := l.q.GetContext(ctx, &detail, `SELECT detail FROM act_texts WHERE n = ?`, acts.Stated); err != nil {
					return err
				}
				var said struct {
					Status ckpt.RunStatus `json:"run_status"`
					Epoch  int64          `json:"run_epoch"`
				}
				if json.Unmarshal([]byte(detail), &said) != nil {
					continue // the hash of the text shows a change
				}
				if r.Epoch < said.Epoch || r.Epoch > said.Epoch && !l.loose {
					v.found("audit_run", name, "its epoch is %d, and row %d of the audit log says %d", r.Epoch, acts.Stated, said.Epoch)
				}
				revived := r.Status == ckpt.RunRunning && (said.Status == ckpt.RunInterrupted || said.Status == ckpt.RunTimedOut)
				if r.Status != said.Status && !revived && !r.Seen {
					v.found("audit_run", name, "it is %s, and row %d of the audit log says %s", r.Status, acts.Stated, said.Status)
				}
			}
			if acts.Saved > max(acts.Other, imported) {
				var head string
				err := l.q.GetContext(ctx, &head, `SELECT id FROM checkpoints WHERE n = ? AND run_id = ?`, acts.Saved, r.ID)
				if err == nil && string(r.Head) != head {
					v.found("audit_run", name, "its head is %q, and row %d of the audit log saved %s last", r.Head, acts.Saved, head)
				}
				if err != nil && !ledger.IsNoRows(err) {
					return err
				}
			}
		}
		return nil
	})
}

const selectSteps = `WITH newest AS MATERIALIZED (SELECT a.place, t.subject, max(a.n) AS n FROM acts a JOIN act_texts t ON t.n = a.n
		WHERE a.outcome IS NULL AND a.action IN ('begin_step', 'finish_step') GROUP BY 1, 2),
	told AS MATERIALIZED (SELECT s.id, max(w.n) AS n FROM newest w JOIN places p ON p.id = w.place
		JOIN agents g ON g.name = p.agent AND (g.owner = p.owner
			OR EXISTS (SELECT 1 FROM owner_changes o WHERE o.agent_id = g.id AND o.from_owner = p.owner AND w.n <= o.n))
		JOIN runs r ON r.agent_id = g.id AND r.name = p.run JOIN steps s ON s.run_id = r.id AND s.key = w.subject GROUP BY s.id)
	SELECT r.agent_id, g.owner, g.name AS agent, r.name AS run, s.key, s.name, s.status, s.attempt, coalesce(s.args, '') AS args,
		coalesce(s.result, '') AS result, coalesce(s.error, '') AS error, w.n, t.detail
	FROM told w JOIN steps s ON s.id = w.id JOIN runs r ON r.id = s.run_id JOIN agents g ON g.id = r.agent_id JOIN act_texts t ON t.n = w.n`

// steps compares each step with the newest act about it.
func (v *verifier) steps(ctx context.Context) error {
	return v.withLog(ctx, func(l *log) error {
		rows, err := l.q.QueryxContext(ctx, selectSteps)
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			var s struct {
				AgentID int64           `db:"agent_id"`
				Owner   string          `db:"owner"`
				Agent   string          `db:"agent"`
				Run     string          `db:"run"`
				Key     string          `db:"key"`
				Name    string          `db:"name"`
				Status  ckpt.StepStatus `db:"status"`
				Attempt int64           `db:"attempt"`
				Args    string          `db:"args"`
				Result  string          `db:"result"`
				Error   string          `db:"error"`
				N       int64           `db:"n"`
				Detail  string          `db:"detail"`
			}
			if err := rows.StructScan(&s); err != nil {
				return err
			}
			if s.N < l.imported(s.AgentID, s.Owner, s.Agent, s.Run) {
				continue
			}
			var said struct {
				Name    string          `json:"name"`
				Status  ckpt.StepStatus `json:"status"`
				Attempt int64           `json:"attempt"`
				Args    string          `json:"args_hash"`
				Result  string          `json:"result_hash"`
				Error   string          `json:"error_hash"`
			}
			if json.Unmarshal([]byte(s.Detail), &said) != nil {
				continue
			}
			for _, c := range []struct {
				what   string
				differ bool
			}{
				{"name", s.Name != said.Name}, {"attempt", s.Attempt != said.Attempt},
				{"status", s.Status != said.Status && (said.Status != ckpt.StepStarted || s.Status != ckpt.StepInterrupted)},
				{"arguments", hashOf(s.Args) != said.Args}, {"result", hashOf(s.Result) != said.Result}, {"error", hashOf(s.Error) != said.Error},
			} {
				if c.differ {
					v.found("audit_step", s.Agent+"/"+s.Run+" "+s.Key, "its %s differs from row %d of the audit log", c.what, s.N)
				}
			}
		}
		return rows.Err()
	})
}

func hashOf(text string) string {
	if text == "" {
		return ""
	}
	return ledger.ShortHash([]byte(text))
}
