package db

import (
	"context"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db/ledger"
	"github.com/ckptsidecar/ckptsidecar/internal/db/sqlite"
	"github.com/ckptsidecar/ckptsidecar/internal/retention"
)

// The methods that the worker of internal/retention needs. Each method is one short transaction,
// and decides on the rows that it finds in it.

// Due returns runs that may have something to remove, by ascending id.
func (s *Store) Due(ctx context.Context, now time.Time, after int64, limit int) ([]int64, error) {
	ids := []int64{}
	at := ckpt.At(now).String() // "" if ages are not to be judged: then nothing is older
	err := s.RO.SelectContext(ctx, &ids, `SELECT id FROM (
		SELECT r.id FROM runs r JOIN agents a ON a.id = r.agent_id
		WHERE r.id > ?1 AND r.last_seq - r.removed > coalesce(json_extract(a.policy, '$.routine_keep'), 3)
		  AND coalesce(json_extract(a.policy, '$.routine_keep'), 3) > 0
		  AND (SELECT count(*) FROM checkpoints c INDEXED BY checkpoints_of_run WHERE c.run_id = r.id AND c.kind = 'routine')
		      > coalesce(json_extract(a.policy, '$.routine_keep'), 3)
		UNION SELECT r.id FROM runs r WHERE r.id > ?1 AND r.ended_at IS NOT NULL AND ?2 <> ''
		UNION SELECT c.run_id FROM checkpoints c INDEXED BY checkpoints_by_age JOIN runs r ON r.id = c.run_id JOIN agents a ON a.id = r.agent_id
		WHERE c.run_id > ?1 AND c.kind = 'recovery' AND ?2 <> ''
		  AND c.created_at <= strftime('%Y-%m-%dT%H:%M:%fZ', ?2, '-' || a.recovery_keep_s || ' seconds')
		UNION SELECT c.run_id FROM checkpoints c INDEXED BY checkpoints_before JOIN runs r ON r.id = c.run_id JOIN agents a ON a.id = r.agent_id
		WHERE c.run_id > ?1 AND c.kind = 'pre_operation' AND c.operation IS NULL AND ?2 <> '' AND a.pre_operation_keep_s > 0
		  AND c.created_at <= strftime('%Y-%m-%dT%H:%M:%fZ', ?2, '-' || a.pre_operation_keep_s || ' seconds')
		UNION SELECT c.run_id FROM checkpoints c INDEXED BY checkpoints_before JOIN operations o ON o.run_id = c.run_id AND o.key = c.operation
		WHERE c.run_id > ?1 AND c.kind = 'pre_operation' AND o.status = 'succeeded'
		) ORDER BY id LIMIT 0 + ?3`, after, at, limit)
	return ids, sqlite.ReadError(err)
}

// Apply asks the plan about each of the runs and removes what the plan lists, at most limit
// checkpoints. A dry run returns everything that would be removed.
func (s *Store) Apply(_ context.Context, runs []int64, plan retention.Func, now time.Time, limit int, dry bool) ([]ckpt.Removal, error) {
	var p *pruning
	err := s.Submit(&ledger.Op{Owner: ledger.Daemon, Claim: sqlite.Frees, Do: func(tx *ledger.Tx) error {
		tx.Touches() // a removal forgets its run
		p = &pruning{store: s, tx: tx, plan: plan, now: now, limit: limit, dry: dry, listed: map[inAgent]bool{},
			who: func(a *ledger.AgentRow) ledger.AuditEntry { return ledger.DaemonEntry(a, "remove") }}
		return p.runs(runs)
	}})
	if err != nil {
		return nil, err
	}
	return p.removed, nil
}

// dropAtOnce bounds the rows of one transaction that drops runs.
const dropAtOnce = 2000

// Drop removes those of the runs that have ended and have no checkpoint left, with everything that
// belongs to them.
func (s *Store) Drop(_ context.Context, runs []int64, over func(retention.History, ckpt.Policy, time.Time) bool,
	now time.Time) (dropped int, more bool, err error) {
	err = s.Submit(&ledger.Op{Owner: ledger.Daemon, Claim: sqlite.Frees, Do: func(tx *ledger.Tx) error {
		dropped, more = 0, false
		rows := int64(0)
		for _, id := range runs {
			if rows > dropAtOnce {
				more = true
				return nil
			}
			n, err := s.drop(tx, id, over, now)
			if err != nil {
				return err
			}
			if n > 0 {
				dropped++
			}
			rows += n
		}
		return nil
	}})
	return dropped, more, err
}

// drop removes one run if it is over, and returns how many rows were removed.
func (s *Store) drop(tx *ledger.Tx, id int64, over func(retention.History, ckpt.Policy, time.Time) bool, now time.Time) (int64, error) {
	run, agent, err := s.RunWithAgent(tx, id)
	if err != nil || run == nil || run.LastSeq > run.Removed {
		return 0, err
	}
	if !over(retention.History{Status: run.Status, EndedAt: run.EndedAt.Time, Ago: run.Ago()}, agent.Settings, now) {
		return 0, nil
	}
	if unknown, err := unresolved(tx, run); err != nil || len(unknown) > 0 {
		return 0, err // a person is still asked about them
	}
	rows, err := s.DropRows(tx, agent, run)
	if err != nil {
		return 0, err
	}
	e := ledger.DaemonEntry(agent, "drop_run")
	e.Run, e.Life, e.Reason = run.Name, run.Life, "the run has ended and its time is over"
	return rows + 1, tx.Audit(e)
}

// OverBudget returns agents that have stored more than their policy allows.
func (s *Store) OverBudget(ctx context.Context, after int64, limit int) ([]int64, error) {
	ids := []int64{}
	err := s.RO.SelectContext(ctx, &ids, `SELECT a.id FROM agents a WHERE a.id > ? AND json_extract(a.policy, '$.max_bytes') > 0
		AND (SELECT sum(stored_bytes) FROM runs r WHERE r.agent_id = a.id) > json_extract(a.policy, '$.max_bytes')
		ORDER BY a.id LIMIT 0 + ?`, after, limit)
	return ids, sqlite.ReadError(err)
}

// trimRuns is how many runs, largest first, one call of budget gets.
const trimRuns = 200

// Trim brings an agent, or with 0 the whole database, closer to its budget.
func (s *Store) Trim(_ context.Context, agent int64, budget func([]retention.History, int64) ([]retention.Verdict,
	int64), limit int, dry bool) (removed []ckpt.Removal, over int64, err error) {
	err = s.Submit(&ledger.Op{Owner: ledger.Daemon, Claim: sqlite.Frees, Do: func(tx *ledger.Tx) error {
		tx.Touches() // a removal forgets its run
		p := &pruning{
			store: s, tx: tx, limit: limit, dry: dry, listed: map[inAgent]bool{},
			who: func(a *ledger.AgentRow) ledger.AuditEntry { return ledger.DaemonEntry(a, "remove") },
		}
		if over, err = s.overBy(tx, agent); err != nil || over <= 0 {
			return err
		}
		if err := p.trim(agent, over, budget); err != nil {
			return err
		}
		removed = p.removed
		if dry {
			for _, r := range removed {
				over -= r.StoredSize
			}
			return nil
		}
		over, err = s.overBy(tx, agent)
		return err
	}})
	return removed, over, err
}

// overBy is how many bytes an agent, or the database, is over its budget.
func (s *Store) overBy(tx *ledger.Tx, agent int64) (over int64, err error) {
	if agent != 0 {
		_, err = tx.Get(&over, `SELECT coalesce(sum(r.stored_bytes), 0) - json_extract(a.policy, '$.max_bytes')
			FROM agents a JOIN runs r ON r.agent_id = a.id WHERE a.id = ? AND json_extract(a.policy, '$.max_bytes') > 0`, agent)
		return over, err
	}
	if s.Opt.MaxBytes == 0 {
		return 0, nil
	}
	var used int64
	_, err = tx.Get(&used, `SELECT page_count - freelist_count FROM pragma_page_count(), pragma_freelist_count()`)
	return used*s.Engine.PageSize() - s.Opt.MaxBytes/100*95, err // leaves some room for new rows
}

func (p *pruning) trim(agent, over int64, budget func([]retention.History, int64) ([]retention.Verdict, int64)) error {
	var ids []int64
	err := p.tx.List(&ids, `SELECT id FROM runs WHERE (?1 = 0 OR agent_id = ?1) AND last_seq > removed
		ORDER BY stored_bytes DESC LIMIT 0 + ?2`, agent, trimRuns)
	if err != nil {
		return err
	}
	var histories []retention.History
	held := map[heldIn]trimmed{}
	for i, id := range ids {
		h, err := p.historyOf(id, i, held)
		if err != nil {
			return err
		}
		histories = append(histories, h)
		p.tx.GotOn()
	}
	verdicts, _ := budget(histories, over)
	for _, v := range verdicts {
		t, ok := held[heldIn{v.Run, v.ID}]
		if !v.Remove || !ok || (p.limit > 0 && !p.dry && len(p.removed) >= p.limit) {
			continue
		}
		if err := p.apply(t.agent, t.run, []ledger.HeldRow{t.row}, []retention.Verdict{v}); err != nil && err != errLimit {
			return err
		}
	}
	return nil
}

// trimmed is a checkpoint that a budget may name, with its agent and run.
type trimmed struct {
	agent *ledger.AgentRow
	run   *ledger.RunRow
	row   ledger.HeldRow
}

// heldIn is the index of a history and the id of a checkpoint in it. Two owners can have the same ids.
type heldIn struct {
	run int
	id  string
}

// historyOf reads the history of a run, and adds its checkpoints to all under the index of the history.
func (p *pruning) historyOf(id int64, index int, all map[heldIn]trimmed) (retention.History, error) {
	run, agent, err := p.store.RunWithAgent(p.tx, id)
	if err != nil {
		return retention.History{}, err
	}
	rows, err := p.tx.History(id)
	if err != nil {
		return retention.History{}, err
	}
	needs, err := p.tx.NeedsOf(run)
	if err != nil {
		return retention.History{}, err
	}
	for _, row := range rows {
		all[heldIn{index, row.ID}] = trimmed{agent, run, row}
	}
	return ledger.HistoryOf(run, rows, &needs), nil
}

// Judged records when all ages were last checked, for audit_violations. If they cannot be checked
// now, it removes a record that is ahead of the wall clock.
func (s *Store) Judged(_ context.Context, at time.Time) error {
	return s.Submit(&ledger.Op{Owner: ledger.Daemon, Claim: sqlite.Frees, Do: func(tx *ledger.Tx) error {
		tx.Touches()
		if at.IsZero() {
			return tx.Exec(`DELETE FROM meta WHERE key = 'ages_judged_at' AND value > ?`, tx.Now)
		}
		return tx.Insert(`INSERT INTO meta (key, value) VALUES ('ages_judged_at', ?)
			ON CONFLICT (key) DO UPDATE SET value = excluded.value`, ckpt.At(at))
	}})
}
