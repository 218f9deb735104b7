package spans

import (
	"context"
	"encoding/json"
	"errors"
	"slices"

	"github.com/jmoiron/sqlx"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db/ledger"
	"github.com/ckptsidecar/ckptsidecar/internal/db/sqlite"
	"github.com/ckptsidecar/ckptsidecar/internal/otlp/observed"
)

// settleAtOnce is how many spans one transaction turns into steps, so that other callers do not
// wait long for the writer.
const settleAtOnce = 200

// Settle makes steps and usage of the spans that have waited long enough, and ends runs that get no
// more spans. It must be called again and again.
func (s *Spans) Settle(ctx context.Context) error {
	if s.Ready(ctx) != nil {
		return nil
	}
	s.settling.Lock()
	defer s.settling.Unlock()
	if err := s.recall(ctx); err != nil {
		return err
	}
	var damage error
	for owner, ids := range s.traces.due(s.Opt.Now(), "") {
		damaged, err := s.settleAll(ctx, owner, ids)
		if damage = errors.Join(damage, damaged); err != nil {
			return errors.Join(damage, err)
		}
	}
	return errors.Join(damage, s.endRuns(ctx))
}

// SettleOwner makes steps and usage of all spans of an owner, however long they have waited.
func (s *Spans) SettleOwner(ctx context.Context, owner string) error {
	if s.Ready(ctx) != nil {
		return nil
	}
	s.settling.Lock()
	defer s.settling.Unlock()
	if err := s.recall(ctx); err != nil {
		return err
	}
	damage, err := s.settleAll(ctx, owner, s.traces.due(s.Opt.Now(), owner)[owner])
	return errors.Join(err, damage)
}

// settleAll settles traces of an owner. If a row is damaged, it leaves the traces that need the row
// waiting, and settles the others.
func (s *Spans) settleAll(ctx context.Context, owner string, ids []string) (damage, err error) {
	slices.Sort(ids)
	alone := 0 // so many of the next traces are settled one by one
	for len(ids) > 0 && ctx.Err() == nil {
		some := ids
		if alone > 0 {
			some = ids[:1]
		}
		n, err := s.settleSome(ctx, owner, some)
		if err != nil {
			n = max(n, 1)
			for _, id := range ids[:n] {
				s.traces.again(owner, id, s.Opt.Now())
			}
			switch {
			case !ledger.IsDamage(err):
				return damage, err
			case len(some) > 1: // the damage is in one of them
				alone = n
				continue
			}
			damage = errors.Join(damage, err)
		}
		ids, alone = ids[n:], max(0, alone-n)
	}
	return damage, nil
}

// recall looks once for spans that an earlier daemon has left waiting.
func (s *Spans) recall(ctx context.Context) error {
	if s.recalled {
		return nil
	}
	var rows []struct {
		Owner string `db:"owner"`
		Trace string `db:"trace"`
		Count int    `db:"count"`
	}
	err := s.RO.SelectContext(ctx, &rows, `SELECT owner, trace, count(*) AS count FROM spans WHERE run_id IS NULL GROUP BY owner, trace`)
	if err != nil {
		return sqlite.ReadError(err)
	}
	for _, r := range rows {
		s.traces.hear(r.Owner, nil, map[string]int{r.Trace: r.Count}, s.Opt.Now())
	}
	s.recalled = true
	return nil
}

// settleSome settles the first of some traces, in one transaction, and returns how many of them have
// no more spans that wait.
func (s *Spans) settleSome(ctx context.Context, owner string, ids []string) (n int, err error) {
	var groups []*group
	damaged := &group{}
	heard := map[string][]turn{}
	spans := 0
	err = s.Reading(ctx, func(q *sqlx.Tx) error {
		for n < len(ids) && spans < settleAtOnce {
			known := s.traces.take(owner, ids[n])
			found, bad, former, err := readTrace(ctx, q, owner, ids[n])
			if err != nil {
				n++
				return err
			}
			more := resolve(ids[n], found, &known, former)
			if former == nil {
				if err := adopt(ctx, q, owner, more); err != nil {
					n++
					return err
				}
			}
			groups = join(groups, more)
			heard[ids[n]] = answersOf(found, &known)
			spans += len(found)
			damaged.spans = append(damaged.spans, bad...)
			if len(found)+len(bad) == waiting {
				s.traces.again(owner, ids[n], s.Opt.Now())
				return nil // the next transaction goes on with this trace
			}
			n++
		}
		return nil
	})
	if err == nil && len(damaged.spans) > 0 {
		s.Log.Error("observed spans were dropped: they are damaged and cannot be read", "owner", owner, "spans", len(damaged.spans))
		err = s.drop(owner, []*group{damaged}, ckpt.CodeCorrupt)
	}
	if err == nil && len(groups) > 0 {
		err = s.tell(owner, groups)
	}
	if ckpt.CodeOf(err) == ckpt.CodeQuota {
		s.Log.Warn("observed spans were dropped: their owner's quota is reached", "owner", owner, "spans", spans)
		err = s.drop(owner, groups, ckpt.CodeQuota)
	}
	if err != nil {
		return n, err
	}
	for id, turns := range heard {
		s.traces.remember(owner, id, turns)
	}
	return n, nil
}

// readTrace reads the waiting spans of a trace that ended first, and the run of its earlier spans. bad
// are spans that are damaged; only their names are known.
func readTrace(ctx context.Context, q *sqlx.Tx, owner, id string) (found, bad []*said, former *bound, err error) {
	var rows []struct {
		Span string `db:"span"`
		Said string `db:"said"`
	}
	if err := q.SelectContext(ctx, &rows, `SELECT span, said FROM spans WHERE owner = ? AND trace = ? AND run_id IS NULL AND said IS NOT NULL
		ORDER BY CASE WHEN json_valid(said) THEN json_extract(said, '$.ended_ns') END, span LIMIT 0 + ?`, owner, id, waiting); err != nil {
		return nil, nil, nil, err
	}
	for _, row := range rows {
		span := new(said)
		if err := json.Unmarshal([]byte(row.Said), span); err != nil {
			bad = append(bad, &said{Span: observed.Span{Trace: id, ID: row.Span}})
			continue
		}
		found = append(found, span)
	}
	var row struct {
		Agent string `db:"agent"`
		Run   string `db:"run"`
	}
	err = q.GetContext(ctx, &row, `SELECT a.name AS agent, r.name AS run
		FROM spans s JOIN runs r ON r.id = s.run_id JOIN agents a ON a.id = r.agent_id
		WHERE s.owner = ? AND s.trace = ? ORDER BY r.id LIMIT 1`, owner, id)
	if ledger.IsNoRows(err) {
		return found, bad, nil, nil
	}
	return found, bad, &bound{row.Agent, row.Run}, err
}

// adopt gives the spans of a conversation to the agent whose run it is, if their root, which would
// name the agent, has not come yet. A run that has ended may be of another agent's conversation.
func adopt(ctx context.Context, q *sqlx.Tx, owner string, groups []*group) error {
	for _, g := range groups {
		if g.trace != "" || g.rootEnded {
			continue
		}
		var agents []string
		err := q.SelectContext(ctx, &agents, `SELECT a.name FROM runs r JOIN agents a ON a.id = r.agent_id
			WHERE a.owner = ? AND r.name = ? AND r.source IS NOT NULL AND r.ended_at IS NULL LIMIT 2`, owner, g.run)
		if err != nil {
			return err
		}
		if len(agents) == 1 {
			g.agent = agents[0]
		}
	}
	return nil
}

// join adds groups to others, so that each run appears once.
func join(all, more []*group) []*group {
	for _, g := range more {
		at := slices.IndexFunc(all, func(have *group) bool { return have.agent == g.agent && have.run == g.run })
		if at < 0 {
			all = append(all, g)
			continue
		}
		have := all[at]
		turns := make(map[string]string, len(have.turns)+len(g.turns))
		for _, from := range []map[string]string{have.turns, g.turns} {
			for span, turn := range from {
				turns[span] = turn
			}
		}
		have.turns = turns
		have.spans = append(have.spans, g.spans...)
		slices.SortFunc(have.spans, inOrder)
		have.rootEnded = have.rootEnded || g.rootEnded
	}
	return all
}

// drop removes waiting spans that cannot become steps. why is the reason.
func (s *Spans) drop(owner string, groups []*group, why ckpt.Code) error {
	return s.Submit(&ledger.Op{Owner: ledger.Daemon, Claim: sqlite.Frees, Do: func(tx *ledger.Tx) error {
		dropped := 0
		tx.Touches()
		for _, g := range groups {
			for _, span := range g.spans {
				if err := tx.Exec(`DELETE FROM spans WHERE owner = ? AND trace = ? AND span = ? AND run_id IS NULL`,
					owner, span.Trace, span.ID); err != nil {
					return err
				}
				dropped++
			}
		}
		return tx.Audit(ledger.AuditEntry{Who: ledger.Daemon, Action: "drop_spans", Owner: owner,
			Outcome: string(why), Detail: map[string]any{"spans": dropped}})
	}})
}
