package audit

import (
	"bytes"
	"context"
	"encoding/json"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db/ledger"
	"github.com/jmoiron/sqlx"
)

// The audit row of a save has a hash of the checkpoint's other columns, so that verify detects a
// change. The texts themselves are not in the log, because the log outlives an erasure.

// noteChange notes a change to a checkpoint that row n of the audit log records. The owner and the
// agent are those of that time.
func (v *verifier) noteChange(n int64, owner, agent, checkpoint string, text json.RawMessage) {
	var detail struct {
		Labels     []string `json:"labels"`
		LabelsHash string   `json:"labels_hash"`
		Pinned     *bool    `json:"pinned"`
	}
	if json.Unmarshal(text, &detail) != nil {
		return
	}
	for _, g := range v.given {
		if g.N > n && g.From == owner && g.Agent == agent {
			owner = g.To
		}
	}
	id := owned{owner, checkpoint}
	c := v.changes[id]
	if detail.Labels != nil {
		c.labelsN, c.labels = n, detail.LabelsHash
	}
	if detail.Pinned != nil {
		c.pinnedN, c.pinned = n, *detail.Pinned
	}
	v.changes[id] = c
}

// restRow has the columns of a checkpoint that verify compares with the row of its save.
type restRow struct {
	N           int64    `db:"n"` // of the row of its save
	ID          string   `db:"id"`
	Owner       string   `db:"owner"`
	Parent      ckpt.Ref `db:"parent"`
	CreatedAt   string   `db:"created_at"`
	ContentType string   `db:"content_type"`
	Labels      string   `db:"labels"`
	Metadata    string   `db:"metadata"`
	Step        ckpt.Ref `db:"step"`
	Pinned      bool     `db:"pinned"`
	Program     ckpt.Ref `db:"program"`
	Operation   ckpt.Ref `db:"operation"`
	Later       bool     `db:"later"` // labels or pin were changed after the chain was read

	At    string   `db:"at"`
	From  ckpt.Ref `db:"saved_from"` // its parent, according to the log
	Saved []byte   `db:"rest"`
	More  ckpt.Ref `db:"more"`
}

// saved is what the row of a save records about labels and pin.
type saved struct {
	Parent ckpt.Ref `json:"parent"`
	Labels string   `json:"labels"`
	Pinned bool     `json:"pinned"`
}

const restColumns = `c.n, c.id, (SELECT o.owner FROM runs r JOIN agents o ON o.id = r.agent_id WHERE r.id = c.run_id) AS owner, c.parent, c.created_at, c.content_type, c.labels, c.metadata, c.step, c.pinned, c.program, c.operation, `

// rests compares checkpoints with the rows of their saves.
func (v *verifier) rests(ctx context.Context, q *sqlx.Tx, from, to int64) error {
	var rows []restRow
	later := `EXISTS (SELECT 1 FROM acts x
		WHERE x.n > ?3 AND x.action = 'change' AND x.subject = unhex(replace(c.id, '-', '')))`
	err := q.SelectContext(ctx, &rows, `SELECT `+restColumns+ledger.TimeOf("a.at")+` AS at, `+ledger.IDOfSave("a.parent")+
		` AS saved_from, a.rest, a.more, `+later+` AS later
		FROM checkpoints c JOIN acts a ON a.n = c.n WHERE c.rowid BETWEEN ?1 AND ?2`, from, to, v.read)
	for i := range rows {
		v.compareRest(&rows[i])
	}
	return err
}

func (v *verifier) compareRest(row *restRow) {
	var said saved
	if row.More != "" && json.Unmarshal([]byte(row.More), &said) != nil {
		return // the row's hash shows a change
	}
	if row.From == "" {
		row.From = said.Parent
	}
	created := row.CreatedAt
	if created == row.At {
		created = ""
	}
	rest := ledger.RestHash(created, row.ContentType, row.Metadata, string(row.Step), string(row.Program), string(row.Operation))
	if row.Parent != row.From || !bytes.Equal(rest, row.Saved) {
		v.found("audit_row", row.ID, "differs from what was saved: its parent, time, content type, metadata, step, operation or program was changed")
	}
	v.compareLater(row, &said)
}

// compareLater compares what can change after a save. Changes before the save do not count: they
// changed a checkpoint with the same id that was deleted and imported again.
func (v *verifier) compareLater(row *restRow, said *saved) {
	if row.Later {
		return
	}
	labels, pinned, now := said.Labels, said.Pinned, ""
	if row.Labels != "{}" {
		now = ledger.ShortHash([]byte(row.Labels))
	}
	c := v.changes[owned{row.Owner, row.ID}]
	if c.labelsN > row.N {
		labels = c.labels
	}
	if c.pinnedN > row.N {
		pinned = c.pinned
	}
	if labels != now {
		v.found("audit_row", row.ID, "its labels differ from those in the audit log")
	}
	if pinned != row.Pinned {
		v.found("audit_row", row.ID, "it was pinned or unpinned without a row in the audit log")
	}
}
