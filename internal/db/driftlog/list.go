package driftlog

import (
	"context"
	"slices"

	"github.com/jmoiron/sqlx"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db/ledger"
	"github.com/ckptsidecar/ckptsidecar/internal/survey"
)

// selectAllFindings reads the findings of all runs, or of one run, by their ids, which grow with
// time.
const selectAllFindings = `SELECT ` + FindingColumns + ` FROM findings f CROSS JOIN runs r ON r.id = f.run_id CROSS JOIN agents a ON a.id = r.agent_id
	WHERE f.id < ?1 AND (a.owner = ?2 OR ?2 = '*') AND (?3 = '' OR a.name = ?3) AND (?4 = '' OR r.name = ?4) AND (?5 = '' OR f.rule = ?5)
	AND (?6 = '' OR f.severity = ?6) AND (?7 = '' OR f.at >= ?7) AND (?8 = '' OR f.at < ?8)
	AND (?9 OR f.closed IS NULL) ORDER BY f.id DESC LIMIT 0 + ?10`

// Findings lists the findings of all runs of the scope, newest first: the open ones, or all. An
// administrator who names no owner sees all.
func (s *Drifts) Findings(ctx context.Context, sc ckpt.Scope, f survey.FindingsQuery) (*survey.Findings, error) {
	limit, err := ledger.PageSizeOf(f.Limit)
	if err == nil {
		err = f.Check()
	}
	if err != nil {
		return nil, err
	}
	if f.Before == "" {
		f.Before = "~" // after every id
	}
	if sc.Admin && sc.Target == "" {
		sc.Target = ckpt.AllOwners
	}
	page := &survey.Findings{Findings: []ckpt.Finding{}}
	err = s.Reading(ctx, func(q *sqlx.Tx) error {
		return q.SelectContext(ctx, &page.Findings, selectAllFindings, f.Before, sc.Whose(), f.Agent, f.Run, f.Rule,
			string(f.Severity), f.Since.String(), f.Until.String(), f.Closed, limit+1)
	})
	if err != nil {
		return nil, err
	}
	if len(page.Findings) > limit {
		page.Findings = page.Findings[:limit]
		page.Next = ckpt.Ref(page.Findings[limit-1].ID)
	}
	if slices.ContainsFunc(page.Findings, func(f ckpt.Finding) bool { return f.Owner != sc.Caller.Owner }) {
		s.AuditRead(sc, "list_findings", f.Agent, "")
	}
	return page, nil
}
