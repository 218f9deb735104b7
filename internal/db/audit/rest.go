package audit

import (
	"context"
	"encoding/json"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db/ledger"
	"github.com/jmoiron/sqlx"
)

// The audit row of a save has a hash of what else the checkpoint says, so that
// verify finds who rewrites it. The words themselves are not in the log, because
// that outlives an erasure.

// changed is what the newest rows of the audit log say of a checkpoint's labels
// and pin; nil where they do not.
type changed struct {
	labels *string // their hash
	pinned *bool
}

// noteChange takes a row of the audit log that changes a checkpoint.
func (v *verifier) noteChange(row *ckpt.AuditRow) {
	if row.Action != "change" || row.Outcome != ledger.OutcomeDone {
		return
	}
	var detail struct {
		Labels     []string `json:"labels"`
		LabelsHash *string  `json:"labels_hash"`
		Pinned     *bool    `json:"pinned"`
	}
	if json.Unmarshal(row.Detail, &detail) != nil {
		return
	}
	c := v.changes[string(row.Subject)]
	if detail.Labels != nil {
		c.labels = detail.LabelsHash
		if c.labels == nil { // an older version did not say it
			c.labels = new(string)
			*c.labels = "?"
		}
	}
	if detail.Pinned != nil {
		c.pinned = detail.Pinned
	}
	v.changes[string(row.Subject)] = c
}

// restRow is what verify compares of a checkpoint with the audit row of its save.
type restRow struct {
	ID          string   `db:"id"`
	Parent      ckpt.Ref `db:"parent"`
	CreatedAt   string   `db:"created_at"`
	ContentType string   `db:"content_type"`
	Labels      string   `db:"labels"`
	Metadata    string   `db:"metadata"`
	Step        ckpt.Ref `db:"step"`
	Pinned      bool     `db:"pinned"`
	Program     ckpt.Ref `db:"program"`
	Detail      string   `db:"detail"`
	Later       bool     `db:"later"` // labels or pin were changed after the chain was read
}

// rests compares checkpoints with the hashes in the audit rows of their saves.
// Rows that an older version wrote have none.
func (v *verifier) rests(ctx context.Context, q *sqlx.Tx, from, to int64) error {
	var rows []restRow
	err := q.SelectContext(ctx, &rows, `SELECT c.id, c.parent, c.created_at, c.content_type, c.labels, c.metadata, c.step, c.pinned, c.program, l.detail,
		EXISTS (SELECT 1 FROM audit_log x WHERE x.n > ?3 AND x.action = 'change' AND x.subject = c.id) AS later
		FROM checkpoints c JOIN audit_log l ON l.n = c.n WHERE c.n BETWEEN ?1 AND ?2`, from, to, v.read)
	for i := range rows {
		v.compareRest(&rows[i])
	}
	return err
}

func (v *verifier) compareRest(row *restRow) {
	var saved struct {
		Rest   string `json:"rest"`
		Labels string `json:"labels"`
		Pinned bool   `json:"pinned"`
	}
	if json.Unmarshal([]byte(row.Detail), &saved) != nil || saved.Rest == "" {
		return
	}
	if saved.Rest != ledger.RestHash(string(row.Parent), row.CreatedAt, row.ContentType, row.Metadata, string(row.Step), string(row.Program)) {
		v.found("audit_row", row.ID, "is not as it was saved: its parent, time, content type, metadata, step or program was changed")
	}
	if row.Later {
		return
	}
	labels, pinned, now := saved.Labels, saved.Pinned, ""
	if row.Labels != "{}" {
		now = ledger.ShortHash([]byte(row.Labels))
	}
	c := v.changes[row.ID]
	if c.labels != nil {
		labels = *c.labels
	}
	if c.pinned != nil {
		pinned = *c.pinned
	}
	if labels != now && labels != "?" {
		v.found("audit_row", row.ID, "its labels are not those that the audit log records")
	}
	if pinned != row.Pinned {
		v.found("audit_row", row.ID, "it was pinned or unpinned, and the audit log does not say so")
	}
}
