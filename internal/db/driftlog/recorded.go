package driftlog

import (
	"cmp"
	"context"
	"slices"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db/blob"
	"github.com/ckptsidecar/ckptsidecar/internal/db/ledger"
	"github.com/ckptsidecar/ckptsidecar/internal/drift/observer"
	"github.com/jmoiron/sqlx"
)

// recordedRow is a run that can be judged again.
type recordedRow struct {
	ID        int64          `db:"id"`
	AgentID   int64          `db:"agent_id"`
	Owner     string         `db:"owner"`
	Agent     string         `db:"agent"`
	Name      string         `db:"name"`
	Workflow  ckpt.Ref       `db:"workflow"`
	Status    ckpt.RunStatus `db:"status"`
	StartedAt ckpt.Time      `db:"started_at"`
	EndedAt   ckpt.Time      `db:"ended_at"`
	Goal      ckpt.Ref       `db:"first_goal"`
	Steps     int64          `db:"steps_ended"`
}

const (
	recordedColumns = `r.id, a.id AS agent_id, a.owner, a.name AS agent, r.name, r.workflow, r.status,
		r.started_at, r.ended_at, r.first_goal, r.steps_ended`
	recordedTables = ` FROM runs r JOIN agents a ON a.id = r.agent_id `
)

// recorded reads what is stored of a run's steps for the detectors. With the policy of its agent, it
// also reads the states that still exist.
func (s *Drifts) recorded(ctx context.Context, row *recordedRow, p *ckpt.Policy) (*observer.RecordedRun, error) {
	run := &observer.RecordedRun{
		ID: row.Name, Source: row.Agent, Workflow: string(row.Workflow), Outcome: string(row.Status), Good: row.Status == ckpt.RunCompleted,
		StartedAt: row.StartedAt.Time, Goal: string(row.Goal),
	}
	err := s.Reading(ctx, func(q *sqlx.Tx) error {
		rows, err := readPrints(ctx, q, `SELECT `+printColumns+
			` FROM steps WHERE run_id = ? AND sig IS NOT NULL AND ended_at IS NOT NULL LIMIT 0 + ?`, row.ID, ckpt.MaxEvaluated)
		if err != nil {
			return err
		}
		slices.SortFunc(rows, func(a, b printRow) int {
			return cmp.Or(cmp.Compare(a.stretch, b.stretch), a.At.Compare(b.At), cmp.Compare(a.id, b.id))
		})
		for i := range rows {
			if i > 0 && rows[i].stretch != rows[i-1].stretch {
				run.Begins = append(run.Begins, len(run.Steps))
			}
			run.Steps = append(run.Steps, rows[i].prints()...)
		}
		if p == nil || len(rows) == 0 {
			return nil
		}
		run.States, err = s.recordedStates(ctx, q, row, p)
		return err
	})
	return run, err
}

// recordedStates makes the fingerprints of the states of a run that still exist.
func (s *Drifts) recordedStates(ctx context.Context, q *sqlx.Tx, row *recordedRow, p *ckpt.Policy) ([]observer.StatePrint, error) {
	var rows []struct {
		ID   string                    `db:"id"`
		Seq  int64                     `db:"seq"`
		Kind ckpt.Kind                 `db:"kind"`
		At   ledger.Lenient[ckpt.Time] `db:"created_at"`
	}
	err := q.SelectContext(ctx, &rows, `SELECT id, seq, kind, created_at FROM checkpoints
		WHERE slot IN (SELECT slot FROM (`+newestOfRun+`)) AND kind <> 'recovery' ORDER BY seq`, row.ID, pastStates)
	if err != nil || len(rows) == 0 {
		return nil, err
	}
	made := &past{states: map[string]observer.StatePrint{}}
	if err := s.printStates(ctx, q, blob.RunKey{Owner: row.Owner, Agent: row.Agent, Run: row.Name}, p, row.ID, made); err != nil {
		return nil, err
	}
	var list []observer.StatePrint
	for _, r := range rows {
		if print, ok := made.states[r.ID]; ok {
			print.ID, print.Seq, print.Kind, print.At = r.ID, r.Seq, r.Kind, r.At.Value.Time
			list = append(list, print)
		}
	}
	return list, nil
}
