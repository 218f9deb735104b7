package audit

import (
	"context"
	"database/sql"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db/files"
	"github.com/ckptsidecar/ckptsidecar/internal/tree"
)

// contents checks each content of a file against its hash.
func (v *verifier) contents(ctx context.Context) error {
	for last, n := int64(0), 1; n > 0; {
		var err error
		if n, err = v.someContents(ctx, &last); err != nil {
			return v.met(ctx, "contents", err)
		}
	}
	return nil
}

func (v *verifier) someContents(ctx context.Context, last *int64) (int, error) {
	q, err := v.db.BeginTxx(ctx, &sql.TxOptions{ReadOnly: true})
	if err != nil {
		return 0, err
	}
	defer q.Rollback()
	var ids []int64 // the bytes are read one row at a time
	if err := q.SelectContext(ctx, &ids, `SELECT id FROM contents WHERE id > ? AND sha256 IS NOT NULL
		ORDER BY id LIMIT 0 + ?`, *last, verifyAtOnce); err != nil {
		return 0, err
	}
	for _, id := range ids {
		*last = id
		var row files.Row
		if err := q.GetContext(ctx, &row, `SELECT `+files.Columns+` FROM contents WHERE id = ?`, id); err != nil {
			return 0, err
		}
		v.report.Contents++
		if _, err := files.Decode(ctx, q, &row); ckpt.CodeOf(err) == ckpt.CodeCorrupt {
			v.found("content", row.Hex(), "%s", ckpt.AsError(err).Err)
		} else if err != nil {
			return 0, err
		}
	}
	return len(ids), nil
}

// trees checks that each tree matches its id.
func (v *verifier) trees(ctx context.Context) error {
	var rows []files.TreeRow
	if err := v.db.SelectContext(ctx, &rows, `SELECT `+files.TreeColumns+` FROM trees t WHERE t.sha256 IS NOT NULL`); err != nil {
		return v.met(ctx, "trees", err)
	}
	for i := range rows {
		t, err := rows[i].Tree()
		if err != nil {
			v.found("tree", rows[i].Sum, "its list of left out files cannot be read")
			continue
		}
		if t.Entries, err = files.Entries(ctx, v.db, rows[i].ID); err != nil {
			return v.met(ctx, "trees", err)
		}
		v.report.Trees++
		if is := tree.ID(t); is != t.ID {
			v.found("tree", t.ID, "its files do not match its id: their id is %s", is)
		}
	}
	return nil
}
