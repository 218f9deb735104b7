package spans

import (
	"context"
	"errors"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db/ledger"
	"github.com/ckptsidecar/ckptsidecar/internal/db/sqlite"
)

// endAtOnce is how many runs one transaction ends.
const endAtOnce = 500

// endRuns ends the runs that get no more spans. If an owner has too many runs, it also ends those
// that would end next. Runs whose rows are damaged do not end.
func (s *Spans) endRuns(ctx context.Context) (damage error) {
	for ctx.Err() == nil {
		var ids []int64
		err := s.RO.SelectContext(ctx, &ids, `SELECT run_id FROM observed WHERE ends_at <= ?
			ORDER BY ends_at LIMIT 0 + ?`, ckpt.At(s.Opt.Now()), endAtOnce)
		if err != nil {
			return errors.Join(damage, sqlite.ReadError(err))
		}
		if len(ids) < endAtOnce {
			if ids, err = s.tooMany(ctx, ids); err != nil {
				return errors.Join(damage, err)
			}
		}
		if len(ids) == 0 {
			return damage
		}
		damaged, err := s.endEach(ids)
		if damage = errors.Join(damage, damaged); err != nil {
			return errors.Join(damage, err)
		}
		if damaged != nil || len(ids) < endAtOnce {
			return damage
		}
	}
	return damage
}

// endEach ends runs, one by one if one of them is damaged.
func (s *Spans) endEach(ids []int64) (damage, err error) {
	if err = s.endSome(ids); err == nil || !ledger.IsDamage(err) {
		return nil, err
	}
	if len(ids) == 1 {
		return err, nil
	}
	for i := range ids {
		damaged, err := s.endEach(ids[i : i+1])
		if damage = errors.Join(damage, damaged); err != nil {
			return damage, err
		}
	}
	return damage, nil
}

// tooMany adds the runs that exceed the limit of their owners.
func (s *Spans) tooMany(ctx context.Context, ids []int64) ([]int64, error) {
	var live int
	if err := s.RO.GetContext(ctx, &live, `SELECT count(*) FROM observed WHERE ends_at IS NOT NULL`); err != nil || live <= liveRuns {
		return ids, sqlite.ReadError(err)
	}
	var more []int64
	err := s.RO.SelectContext(ctx, &more, `SELECT run_id FROM (SELECT o.run_id, o.ends_at, row_number() OVER (PARTITION BY a.owner
		ORDER BY o.ends_at DESC, o.run_id DESC) AS place
		FROM observed o JOIN runs r ON r.id = o.run_id JOIN agents a ON a.id = r.agent_id WHERE o.ends_at > ?) WHERE place > ? LIMIT 0 + ?`,
		ckpt.At(s.Opt.Now()), liveRuns, endAtOnce-len(ids))
	return append(ids, more...), sqlite.ReadError(err)
}

// endSome ends runs. A run that has got a span meanwhile continues, unless it exceeds the limit.
func (s *Spans) endSome(ids []int64) error {
	return s.Submit(&ledger.Op{Owner: ledger.Daemon, Claim: sqlite.GoesOn, Do: func(tx *ledger.Tx) error {
		for _, id := range ids {
			run, agent, err := s.RunWithAgent(tx, id)
			if err != nil {
				return err
			}
			if run == nil {
				continue
			}
			if err := s.endRun(tx, agent, run); err != nil {
				return err
			}
		}
		return nil
	}})
}

func (s *Spans) endRun(tx *ledger.Tx, agent *ledger.AgentRow, run *ledger.RunRow) error {
	var row struct {
		Last   ckpt.Time `db:"last_at"`
		Failed bool      `db:"failed"`
	}
	there, err := tx.Get(&row, `SELECT last_at, failed FROM observed WHERE run_id = ? AND ends_at IS NOT NULL`, run.ID)
	if err != nil || !there {
		return err
	}
	tx.Touches(run)
	if err := tx.Exec(`UPDATE observed SET ends_at = NULL WHERE run_id = ?`, run.ID); err != nil {
		return err
	}
	if run.Source == "" || !run.EndedAt.IsZero() {
		return nil // its agent reports on it now
	}
	status := ckpt.RunCompleted
	if row.Failed {
		status = ckpt.RunFailed
	}
	err = tx.Exec(`UPDATE runs SET status = ?, ended_at = ?, accumulated_ms = ?, segment_at = NULL, updated_at = ? WHERE id = ?`,
		string(status), row.Last, run.Accumulated(row.Last.Time), tx.Now, run.ID)
	if err != nil {
		return err
	}
	e := ledger.DaemonEntry(agent, "end_run")
	e.Run, e.Reason, e.Detail = run.Name, "no more of it was observed", map[string]any{"status": status}
	return tx.Audit(e)
}
