package surveys

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/jmoiron/sqlx"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/survey"
)

// needs collects what waits for a person.
type needs struct {
	ctx   context.Context
	q     *sqlx.Tx
	owner string
	now   ckpt.Time
	// elsewhere reports whether another host of the fleet owns a run. Nobody can settle here what that run needs.
	elsewhere func(run int64) bool
	// waits finds the process that waits for an answer.
	waits func(waiting ckpt.Ref) int

	operations, prompts, findings, lost, secrets []needRow
}

// needRow is a need as the query returns it.
type needRow struct {
	RunID     int64           `db:"run_id"`
	Owner     string          `db:"owner"`
	Agent     string          `db:"agent"`
	Run       string          `db:"run"`
	Status    ckpt.RunStatus  `db:"status"`
	Epoch     int64           `db:"epoch"`
	DeadSince ckpt.Time       `db:"interrupted_at"`
	ID        string          `db:"id"` // the id of the prompt or the finding, or the key of the operation
	Attempt   int64           `db:"attempt"`
	Count     int64           `db:"count"`
	Text      string          `db:"text"`
	Reason    string          `db:"reason"`
	Kind      ckpt.PromptKind `db:"kind"`
	Rule      string          `db:"rule"`
	Severity  ckpt.Severity   `db:"severity"`
	Since     ckpt.Time       `db:"since"`
	Point     ckpt.Ref        `db:"checkpoint"`
	Prompt    ckpt.Ref        `db:"prompt"` // of an operation: the open question about it
	Answered  bool            `db:"answered"`
	Command   *ckpt.Command   `db:"command"`
	Waiting   ckpt.Ref        `db:"waiting"`

	waits int // the id of the process that Waiting describes, while it lives
}

const (
	needOf    = `r.id AS run_id, a.owner, a.name AS agent, r.name AS run, r.status, r.epoch, r.interrupted_at, r.command, r.waiting`
	needRuns  = ` CROSS JOIN runs r ON r.id = x.run_id CROSS JOIN agents a ON a.id = r.agent_id `
	ofOwner   = `(a.owner = ?1 OR ?1 = '*')`
	textOf200 = `200` // characters of texts that people and models wrote

	selectUncertain = `SELECT ` + needOf +
		`, x.key AS id, x.attempt, x.name AS text, x.checkpoint, x.started_at AS since, p.id AS prompt, substr(coalesce(x.error, ''), 1, ` + textOf200 + `) AS reason
		FROM operations x` + needRuns + `
		LEFT JOIN prompts p ON p.run_id = x.run_id AND p.kind = 'operation' AND p.operation = x.key AND p.attempt = x.attempt AND p.answered_at IS NULL
		WHERE x.status = 'uncertain' AND ` + ofOwner + `
		AND (p.id IS NOT NULL OR x.left_uncertain OR r.ended_at IS NOT NULL OR NOT x.idempotent AND NOT x.self_check)`
	selectPrompts = `SELECT ` + needOf + `, x.id, x.kind, substr(x.question, 1, ` + textOf200 +
		`) AS text, substr(x.reason, 1, ` + textOf200 + `) AS reason,
		x.checkpoint, x.at AS since FROM prompts x` + needRuns + `
		WHERE x.answered_at IS NULL AND x.kind <> 'operation' AND (x.expires_at IS NULL OR x.expires_at > ?2) AND ` + ofOwner
	// x has the newest finding of each run and the number of findings.
	selectFindings = `SELECT ` + needOf + `, f.id, f.rule, f.severity, substr(f.message, 1, ` + textOf200 + `) AS text, f.checkpoint, x.count, x.since
		FROM (SELECT run_id, count(*) AS count, min(at) AS since, max(id) AS id FROM findings WHERE %s GROUP BY run_id) x
		CROSS JOIN findings f ON f.id = x.id` + needRuns + `WHERE ` + ofOwner
	criticalFindings = `severity = 'critical' AND dismissed_at IS NULL AND closed IS NULL`
	secretFindings   = `rule = 'secret' AND closed IS NULL AND evidence ->> 'redacted' IS NOT TRUE`
	// When a person last answered how run r goes on, since somebody ran it. An answer that begins it anew makes a life that
	// nobody has run yet.
	answeredAt = `CASE WHEN r.life > 1 AND NOT EXISTS (SELECT 1 FROM run_segments s WHERE s.run_id = r.id) THEN r.started_at ELSE (SELECT max(p.answered_at) FROM prompts p
		WHERE p.run_id = r.id AND p.kind <> 'question' AND p.choice IS NOT NULL
		AND p.answered_at >= coalesce(r.interrupted_at, (SELECT s.ended_at FROM run_segments s WHERE s.run_id = r.id ORDER BY s.n DESC LIMIT 1))) END`
	selectLost = `SELECT ` + needOf + `, coalesce(substr(r.goal, 1, ` + textOf200 +
		`), '') AS text, ` + answeredAt + ` IS NOT NULL AS answered, coalesce(r.interrupted_at, ` + answeredAt + `) AS since
		FROM runs r CROSS JOIN agents a ON a.id = r.agent_id
		WHERE r.status IN ('interrupted', 'timed_out') AND since IS NOT NULL AND ` + ofOwner
)

func (n *needs) read() error {
	for _, of := range []struct {
		to    *[]needRow
		query string
		args  []any
	}{
		{&n.operations, selectUncertain, nil},
		{&n.prompts, selectPrompts, []any{n.now}},
		{&n.findings, fmt.Sprintf(selectFindings, criticalFindings), nil},
		{&n.lost, selectLost, nil},
		{&n.secrets, fmt.Sprintf(selectFindings, secretFindings), nil},
	} {
		if err := n.q.SelectContext(n.ctx, of.to, of.query, append([]any{n.owner}, of.args...)...); err != nil {
			return err
		}
		*of.to = slices.DeleteFunc(*of.to, func(row needRow) bool { return n.elsewhere(row.RunID) })
		for i := range *of.to {
			row := &(*of.to)[i]
			row.waits = n.waits(row.Waiting)
		}
		newestFirst(*of.to)
	}
	return nil
}

func newestFirst(rows []needRow) {
	slices.SortFunc(rows, func(a, b needRow) int {
		return cmp.Or(b.Since.Compare(a.Since.Time), cmp.Compare(a.Owner, b.Owner), cmp.Compare(a.Agent, b.Agent),
			cmp.Compare(a.Run, b.Run), cmp.Compare(a.ID, b.ID))
	})
}

// rows sorts the needs and keeps one for each cause.
func (n *needs) rows() (list []survey.Need, more int64, counted map[string]int64) {
	list = []survey.Need{}
	told := map[int64]bool{} // runs that already wait for an operation or a prompt
	decisions := map[int64]*needRow{}
	for i := range n.prompts {
		if p := &n.prompts[i]; p.Kind == ckpt.PromptDecision {
			decisions[p.RunID] = p
		}
	}
	answered := map[string]bool{} // decisions that an operation already represents
	for i := range n.operations {
		row := &n.operations[i]
		need := row.need(survey.NeedOperation)
		need.Operation, need.Attempt = row.ID, row.Attempt
		need.Why = "Nobody knows whether it took effect: its end was never recorded."
		if row.Reason != "" {
			need.Why = "Nobody knows whether it took effect: " + strings.TrimRight(row.Reason, ".") + "."
		}
		if row.Prompt != "" {
			need.Prompt, need.PromptKind = row.Prompt, ckpt.PromptOperation
		}
		if !row.DeadSince.IsZero() {
			need.Since = row.DeadSince
		}
		if p := decisions[row.RunID]; p != nil {
			answered[p.ID] = true
		}
		list, told[row.RunID] = append(list, need), true
	}
	prompts := int64(0)
	for i := range n.prompts {
		row := &n.prompts[i]
		prompts++
		if answered[row.ID] {
			continue
		}
		need := row.need(survey.NeedPrompt)
		need.Prompt, need.PromptKind, need.Why = ckpt.Ref(row.ID), row.Kind, row.Reason
		list, told[row.RunID] = append(list, need), true
	}
	list = append(list, together(n.findings, survey.NeedFinding, survey.NeedFindings)...)
	lost := slices.DeleteFunc(slices.Clone(n.lost), func(row needRow) bool { return told[row.RunID] })
	list = append(list, together(lost, survey.NeedLostRun, survey.NeedLostRuns)...)
	list = append(list, together(n.secrets, survey.NeedSecret, survey.NeedSecrets)...)
	if len(list) > survey.MaxNeeds {
		list, more = list[:survey.MaxNeeds], int64(len(list)-survey.MaxNeeds)
	}
	return list, more, map[string]int64{
		survey.NeedOperation: int64(len(n.operations)), survey.NeedPrompt: prompts, survey.NeedFinding: int64(len(n.findings)),
		survey.NeedLostRun: int64(len(lost)), survey.NeedSecret: int64(len(n.secrets)),
	}
}

// together makes one row for each of the newest runs, and one row for all others.
func together(rows []needRow, one, many string) (list []survey.Need) {
	for i := range rows[:min(len(rows), survey.NeedsOfAKind)] {
		row := &rows[i]
		need := row.need(one)
		need.Finding, need.Rule, need.Severity = ckpt.Ref(row.ID), row.Rule, row.Severity
		need.Count = max(row.Count, 1)
		if one == survey.NeedLostRun {
			need.Why = "Its owner is gone, and no process has resumed it."
			if row.Status == ckpt.RunTimedOut {
				need.Why = "Its owner sent no heartbeat, or made no progress, in time."
			}
			if row.Answered {
				need.Why = "A person has answered how it goes on: it may go on; nobody runs it."
			}
		}
		list = append(list, need)
	}
	if len(rows) <= survey.NeedsOfAKind {
		return list
	}
	rest := rows[survey.NeedsOfAKind:]
	shared := survey.Need{What: many, Key: many, Count: int64(len(rest))}
	for i := range rest {
		if shared.Since.IsZero() || rest[i].Since.Before(shared.Since.Time) {
			shared.Since = rest[i].Since
		}
		shared.Severity = worse(shared.Severity, rest[i].Severity)
	}
	return append(list, shared)
}

// need converts the row to the form for callers. Its key names the thing and, if the thing can
// recur, which occurrence it is.
func (r *needRow) need(what string) survey.Need {
	key := what + ":" + r.ID
	if what == survey.NeedOperation || what == survey.NeedLostRun {
		key = fmt.Sprintf("%s:%s/%s/%s/%s", what, r.Owner, r.Agent, r.Run, r.ID)
	}
	if r.Attempt > 0 {
		key += fmt.Sprintf("#%d", r.Attempt)
	}
	return survey.Need{What: what, Key: key, Count: 1, Owner: r.Owner, Agent: r.Agent, Run: r.Run, Status: r.Status, Epoch: r.Epoch,
		Since: r.Since, Text: r.Text, Checkpoint: r.Point, MayGoOn: r.Answered, WaitingPID: r.waits, Command: r.Command}
}
