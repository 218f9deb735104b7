package surveys

import (
	"cmp"
	"context"
	"slices"

	"github.com/jmoiron/sqlx"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db/ledger"
	"github.com/ckptsidecar/ckptsidecar/internal/retention"
	"github.com/ckptsidecar/ckptsidecar/internal/survey"
)

// budgetAhead is how many checkpoints a forecast names that would be removed next because of the
// budget of an agent that is not over its budget.
const budgetAhead = 10

const (
	selectAgents = `SELECT id, owner, name, policy, policy_own FROM agents
		WHERE (owner = ?1 OR ?1 = '*') AND (?2 = '' OR name = ?2) ORDER BY owner, name`
	selectAgentsRuns = `SELECT ` + ledger.RunColumns + ` FROM runs WHERE agent_id = ?1 AND last_seq > removed ORDER BY id`
	selectHeld       = `SELECT ` + ledger.HeldColumns + ` FROM checkpoints WHERE ` + ofRunsSlots + ` ORDER BY seq DESC`
	// What needs each checkpoint; a fork needs a checkpoint of another run of its owner.
	selectNeeded = `SELECT n.id, n.needed_by, a.owner FROM (
			SELECT run_id, checkpoint AS id, 'an ' || status || ' operation' AS needed_by FROM operations
			WHERE status IN ('open', 'uncertain') AND checkpoint IS NOT NULL AND run_id IN (SELECT value FROM json_each(?1))
			UNION ALL SELECT run_id, checkpoint, 'a prompt' FROM prompts WHERE answered_at IS NULL AND checkpoint IS NOT NULL
			AND run_id IN (SELECT value FROM json_each(?1))
			UNION ALL SELECT id, forked_from, 'a fork' FROM runs WHERE forked_from IS NOT NULL AND last_seq = 0 AND ended_at IS NULL
		) n CROSS JOIN runs r ON r.id = n.run_id CROSS JOIN agents a ON a.id = r.agent_id`
)

// Forecast returns what retention removes next, and what keeps the rest.
func (s *Surveys) Forecast(ctx context.Context, sc ckpt.Scope, f survey.ForecastQuery) (*survey.Forecast, error) {
	if err := f.Check(); err != nil {
		return nil, err
	}
	if f.Agent != "" {
		if _, err := s.core.FindAgent(ctx, sc, f.Agent); err != nil {
			return nil, err
		}
	} else {
		sc = everybodys(sc)
	}
	s.core.AuditRead(sc, "read_forecast", f.Agent, "")
	clock := ckpt.At(s.core.Opt.Now())
	l := looking{plan: s.core.Opt.Retention, query: f, clock: clock, trusted: ckpt.At(s.core.Opt.Trusted()), kept: map[string]*survey.Keeping{}}
	if s.core.Opt.Trusted().IsZero() {
		l.trusted = ckpt.Time{}
	}
	l.v = &survey.Forecast{At: clock, Guarded: l.trusted.IsZero(), WhatIf: f.WhatIf(), Going: []survey.Going{}, Keeping: []survey.Keeping{}}
	err := s.core.Reading(ctx, func(q *sqlx.Tx) error {
		l.ctx, l.q = ctx, q
		var agents []ledger.AgentRow
		if err := q.SelectContext(ctx, &agents, selectAgents, sc.Whose(), f.Agent); err != nil {
			return err
		}
		for i := range agents {
			agent, err := agents[i].Parsed()
			if err == nil {
				err = l.agent(agent)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return l.done(), nil
}

// looking is a forecast that is being made.
type looking struct {
	ctx     context.Context
	q       *sqlx.Tx
	plan    retention.Func
	query   survey.ForecastQuery
	clock   ckpt.Time
	trusted ckpt.Time
	v       *survey.Forecast
	kept    map[string]*survey.Keeping
}

// agent adds the runs of an agent to the forecast.
func (l *looking) agent(agent *ledger.AgentRow) error {
	var runs []ledger.RunRow
	if err := l.q.SelectContext(l.ctx, &runs, selectAgentsRuns, agent.ID); err != nil || len(runs) == 0 {
		return err
	}
	policy := l.query.Over(agent.Settings)
	needed, err := l.neededBy(agent.Owner, runs)
	if err != nil {
		return err
	}
	var histories []retention.History
	var all []survey.Going // all checkpoints of the agent
	stored := int64(0)
	for i := range runs {
		run := &runs[i]
		stored += run.StoredBytes
		h, rows, err := l.history(run, needed)
		if err != nil {
			return err
		}
		for k, next := range retention.Ahead(l.plan, h, policy, l.trusted.Time, l.clock.Time) {
			g := survey.Going{Owner: agent.Owner, Agent: agent.Name, Run: run.Name, Checkpoint: rows[k].ID, Kind: rows[k].Kind, Seq: rows[k].Seq,
				CreatedAt: rows[k].CreatedAt.Value, StoredSize: rows[k].StoredSize, When: string(next.Turn), Reason: next.Reason}
			if next.Turn == retention.TurnByAge {
				g.Goes = ckpt.At(next.At)
			}
			all = append(all, g)
		}
		histories = append(histories, h)
	}
	due := l.budget(policy.MaxBytes, stored, histories, all)
	for _, g := range all {
		if g.When != survey.GoesByBudget {
			l.note(g)
		}
	}
	for _, i := range due {
		all[i].When = survey.GoesNow
		l.note(all[i])
	}
	return nil
}

// note adds the fate of a checkpoint.
func (l *looking) note(g survey.Going) {
	if g.When != "" {
		l.v.Going = append(l.v.Going, g)
		l.v.Bytes += g.StoredSize
		return
	}
	k := l.kept[g.Reason]
	if k == nil {
		k = &survey.Keeping{Rule: g.Reason}
		l.kept[g.Reason] = k
	}
	k.Checkpoints++
	k.Bytes += g.StoredSize
}

// budget changes the fate of the checkpoints that are removed now because an agent is over its budget,
// and returns their places in the order of removal. It also names those that stay and would be removed
// first if the agent reached its budget.
func (l *looking) budget(most, stored int64, histories []retention.History, all []survey.Going) (due []int) {
	if most <= 0 {
		return nil
	}
	over := stored - most
	places := make(map[string]int, len(all))
	for i := range all {
		if all[i].When == survey.GoesNow {
			over -= all[i].StoredSize
			continue
		}
		places[all[i].Checkpoint] = i
	}
	verdicts, _ := retention.Budget(histories, 1<<62)
	named := 0
	for _, v := range verdicts {
		i, stays := places[v.ID]
		if !stays {
			continue
		}
		g := &all[i]
		switch {
		case over > 0:
			over -= g.StoredSize
			g.When, g.Goes, g.Reason = survey.GoesByBudget, ckpt.Time{}, v.Reason
			due = append(due, i)
		case g.When == "" && named < budgetAhead:
			named++
			first := *g
			first.When, first.Reason = survey.GoesByBudget, v.Reason
			l.v.Going = append(l.v.Going, first)
		}
	}
	return due
}

// neededBy returns what needs the checkpoints of some runs of an owner, by their ids.
func (l *looking) neededBy(owner string, runs []ledger.RunRow) (map[string]string, error) {
	ids := make([]int64, len(runs))
	for i := range runs {
		ids[i] = runs[i].ID
	}
	var rows []struct {
		ID    string `db:"id"`
		By    string `db:"needed_by"`
		Owner string `db:"owner"`
	}
	if err := l.q.SelectContext(l.ctx, &rows, selectNeeded, arrayOf(ids)); err != nil {
		return nil, err
	}
	needed := map[string]string{}
	for _, row := range rows {
		if row.Owner == owner {
			needed[row.ID] = row.By
		}
	}
	return needed, nil
}

// history is everything that retention knows of a run.
func (l *looking) history(run *ledger.RunRow, needed map[string]string) (h retention.History, rows []ledger.HeldRow, err error) {
	if err := l.q.SelectContext(l.ctx, &rows, selectHeld, run.ID); err != nil {
		return h, nil, err
	}
	h = retention.History{Status: run.Status, EndedAt: run.EndedAt.Time, Checkpoints: make([]retention.Held, len(rows))}
	needs := ledger.Needs{By: needed}
	if run.EndedAt.IsZero() {
		needs.Head = string(run.Head)
	}
	back := run.BackSeq.Valid && run.EndedAt.IsZero() // a rollback target is kept for drift that may be beginning
	for i := range rows {
		held := rows[i].Held()
		if back && !held.Suspect && !held.Damaged && held.Seq <= run.BackSeq.Int64 {
			needs.Back, back = held.ID, false
		}
		held.NeededBy = needs.Of(held.ID)
		h.Checkpoints[i] = held
	}
	return h, rows, nil
}

// done sorts the lists and cuts them to their limits.
func (l *looking) done() *survey.Forecast {
	turns := []string{survey.GoesNow, survey.GoesNextSave, survey.GoesByAge, survey.GoesByBudget}
	slices.SortStableFunc(l.v.Going, func(a, b survey.Going) int {
		return cmp.Or(cmp.Compare(slices.Index(turns, a.When), slices.Index(turns, b.When)), a.Goes.Compare(b.Goes.Time))
	})
	limit := cmp.Or(l.query.Limit, survey.DefaultForecast)
	if more := len(l.v.Going) - limit; more > 0 {
		l.v.Going, l.v.MoreGoing = l.v.Going[:limit], int64(more)
	}
	for _, k := range l.kept {
		l.v.Keeping = append(l.v.Keeping, *k)
	}
	slices.SortFunc(l.v.Keeping, func(a, b survey.Keeping) int {
		return cmp.Or(cmp.Compare(b.Checkpoints, a.Checkpoints), cmp.Compare(a.Rule, b.Rule))
	})
	if len(l.v.Keeping) > limit {
		l.v.Keeping = l.v.Keeping[:limit]
	}
	return l.v
}
