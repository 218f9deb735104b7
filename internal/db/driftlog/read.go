package driftlog

import (
	"context"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db/ledger"
	"github.com/ckptsidecar/ckptsidecar/internal/db/sqlite"
	"github.com/jmoiron/sqlx"
)

// Drift returns the verdict of a run and its findings, newest first: the open ones, or all.
func (s *Drifts) Drift(ctx context.Context, sc ckpt.Scope, f ckpt.DriftFilter) (*ckpt.DriftReport, error) {
	limit, err := ledger.PageSizeOf(f.Limit)
	if err != nil {
		return nil, err
	}
	if f.Before == "" {
		f.Before = "~" // after every id
	}
	row, err := s.FindRun(ctx, sc, ckpt.RunRef{Agent: f.Agent, Run: f.Run})
	if err != nil {
		return nil, err
	}
	s.AuditRead(sc, "read_drift", f.Agent, "")
	report := &ckpt.DriftReport{Agent: row.Agent, Owner: row.Owner, Run: row.Run.Run}
	if agent, err := s.FindAgent(ctx, sc, f.Agent); err == nil {
		report.Calibration = s.calibrationOf(agent, string(row.Workflow))
	}
	err = s.Reading(ctx, func(q *sqlx.Tx) error {
		if row.Source != "" {
			if err := readUnseen(ctx, q, row.ID, report); err != nil {
				return err
			}
		}
		v, err := s.ReadVerdict(ctx, q, row.ID)
		if err != nil {
			return err
		}
		report.DriftVerdict = *v
		err = q.SelectContext(ctx, &report.Secrets, `SELECT `+FindingColumns+FindingTables+`
			WHERE f.run_id = ? AND (? OR f.closed IS NULL) AND f.rule = 'secret' ORDER BY f.id DESC LIMIT 0 + ?`, row.ID, f.All, ckpt.MaxFindings)
		if err != nil {
			return err
		}
		return q.SelectContext(ctx, &report.Findings, `SELECT `+FindingColumns+FindingTables+`
			WHERE f.run_id = ? AND (? OR f.closed IS NULL) AND f.rule <> 'secret' AND f.id < ?
			ORDER BY f.id DESC LIMIT 0 + ?`, row.ID, f.All, f.Before, limit+1)
	})
	if err == nil && f.Line {
		report.Timeline, err = s.timeline(ctx, row.ID)
	}
	if len(report.Findings) > limit {
		report.Findings = report.Findings[:limit]
		report.Next = ckpt.Ref(report.Findings[limit-1].ID)
	}
	return report, err
}

// ReadVerdict reads the verdict on a run.
func (s *Drifts) ReadVerdict(ctx context.Context, q *sqlx.Tx, runID int64) (*ckpt.DriftVerdict, error) {
	var open []ckpt.Finding
	if err := q.SelectContext(ctx, &open, openFindings, runID); err != nil {
		return nil, err
	}
	v := verdictOf(open)
	if len(open) == 0 {
		return v, nil
	}
	return v, readWayBack(ctx, q, runID, open, v)
}

// readWayBack adds the checkpoint to go back to, while open findings doubt checkpoints.
func readWayBack(ctx context.Context, q *sqlx.Tx, runID int64, open []ckpt.Finding, v *ckpt.DriftVerdict) error {
	for i := range open {
		if f := &open[i]; f.Marks() && v.Recovery == "" {
			v.Recovery = f.Checkpoint
		}
	}
	var run ledger.RunRow
	if err := q.GetContext(ctx, &run, `SELECT `+ledger.RunColumns+` FROM runs WHERE id = ?`, runID); err != nil {
		return err
	}
	sound := soundUpTo(open, run.LastSeq)
	if sound == run.LastSeq {
		return nil
	}
	err := q.GetContext(ctx, &v.Clean, cleanCheckpoint, run.ID, sound, nil, ledger.ForkWithout(&run))
	if ledger.IsNoRows(err) {
		return nil
	}
	return err
}

// DriftStatus counts the open findings of the scope's agents.
func (s *Drifts) DriftStatus(ctx context.Context, q *sqlx.Tx, owner string, d *ckpt.DriftStatus) error {
	d.Watched, d.Findings, d.Calibrations = s.Watches.held.Load(), []ckpt.FindingCount{}, s.calibrations.list(owner)
	return q.SelectContext(ctx, &d.Findings,
		`SELECT f.rule, f.severity, count(*) AS count FROM (
			SELECT run_id, rule, severity FROM findings INDEXED BY findings_open WHERE closed IS NULL AND rule <> 'secret'
			UNION ALL SELECT run_id, rule, severity FROM findings INDEXED BY findings_secrets WHERE closed IS NULL AND rule = 'secret') f
		JOIN runs r ON r.id = f.run_id JOIN agents a ON a.id = r.agent_id WHERE (a.owner = ?1 OR ?1 = '*') GROUP BY f.rule, f.severity ORDER BY f.rule, f.severity`, owner)
}

// timeline is what the run did last. A step comes after the checkpoint that was the newest when the
// step ended.
func (s *Drifts) timeline(ctx context.Context, runID int64) ([]ckpt.TimelineEntry, error) {
	var rows []struct {
		What    string                    `db:"what"`
		At      ledger.Lenient[ckpt.Time] `db:"at"`
		Key     string                    `db:"key"`
		Name    string                    `db:"name"`
		Status  string                    `db:"status"`
		Seq     int64                     `db:"seq"`
		Suspect bool                      `db:"suspect"`
		ID      int64                     `db:"id"`
	}
	err := s.RO.SelectContext(ctx, &rows, `SELECT * FROM (
			SELECT * FROM (SELECT 'step' AS what, coalesce(ended_at, started_at) AS at, key, name, status,
				after_seq AS seq, 0 AS suspect, id FROM steps
				WHERE run_id = ?1 ORDER BY after_seq DESC, id DESC LIMIT 0 + ?2)
			UNION ALL SELECT 'checkpoint', created_at, id, kind, 'saved', seq, suspect, 0 FROM checkpoints
				WHERE slot IN (SELECT slot FROM (`+newestOfRun+`))
		) ORDER BY seq DESC, id DESC LIMIT 0 + ?2`, runID, ckpt.TimelineLength)
	if err != nil {
		return nil, sqlite.ReadError(err)
	}
	line := make([]ckpt.TimelineEntry, len(rows))
	for i := range rows {
		r := &rows[len(rows)-1-i]
		line[i] = ckpt.TimelineEntry{What: r.What, At: r.At.Value, Key: r.Key, Name: r.Name, Status: r.Status, Seq: r.Seq, Suspect: r.Suspect}
	}
	return line, nil
}

// Finding reads one finding.
func (s *Drifts) Finding(ctx context.Context, sc ckpt.Scope, id string) (*ckpt.Finding, error) {
	if err := ckpt.CheckID(id); err != nil {
		return nil, err
	}
	f, err := s.findFinding(ctx, sc, id)
	if err != nil {
		return nil, err
	}
	if f.Owner != sc.Caller.Owner {
		s.AuditReadOf(sc, "read_drift", f.Owner, f.Agent, id)
	}
	return f, nil
}
