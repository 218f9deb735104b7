package audit

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"strings"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db/blob"
	"github.com/ckptsidecar/ckptsidecar/internal/db/ledger"
	"github.com/ckptsidecar/ckptsidecar/internal/db/sqlite"
	"github.com/jmoiron/sqlx"
)

// Verify checks a database file without trusting any part of it: SQLite's own integrity, foreign
// keys, the guards, the invariants of audit_violations, the chain of the audit log, each checkpoint
// against the row that records its save, and every state, every write of LangGraph's tasks, every
// content of a file and every tree against its hash. It trusts no view of the database. It only
// reads, and can run beside a daemon.
func Verify(ctx context.Context, path string, progress func(done, total int64)) (*VerifyReport, error) {
	return verify(ctx, path, nil, progress)
}

// VerifyRows is Verify without the bytes of states, for a caller that checks each state itself.
func VerifyRows(ctx context.Context, path string) (*VerifyReport, error) {
	return (&verifier{rowsOnly: true}).verify(ctx, path, nil, nil)
}

// VerifyChain checks only the chain of the audit log and the texts beside it, over connections of a
// daemon.
func VerifyChain(ctx context.Context, db *sqlx.DB) (*VerifyReport, error) {
	v := &verifier{db: db, report: &VerifyReport{Problems: []Problem{}}, progress: func(int64, int64) {},
		changes: map[owned]changed{}}
	for _, check := range []func(context.Context) error{v.chain, v.texts} {
		if err := check(ctx); err != nil {
			return nil, err
		}
	}
	return v.report, nil
}

func verify(ctx context.Context, path string, heads []Head, progress func(done, total int64)) (*VerifyReport, error) {
	return (&verifier{}).verify(ctx, path, heads, progress)
}

func (v *verifier) verify(ctx context.Context, path string, heads []Head, progress func(done, total int64)) (*VerifyReport, error) {
	if _, err := os.Stat(path); err != nil {
		return nil, sqlite.Missing("there is no database to verify", err)
	}
	db, done, err := sqlite.OpenBeside(path, 2)
	if err != nil {
		return nil, err
	}
	defer done()
	if progress == nil {
		progress = func(int64, int64) {}
	}
	v.db, v.report, v.progress, v.changes = db, &VerifyReport{Path: path, Problems: []Problem{}}, progress, map[owned]changed{}
	if err := v.identity(ctx); err != nil {
		return nil, err
	}
	if err := v.expect(ctx, heads); err != nil {
		return nil, err
	}
	for _, check := range []func(context.Context) error{
		v.integrity, v.owed, v.foreignKeys, v.guards, v.invariants, v.material, v.chain, v.texts, v.runs, v.steps, v.states, v.graphWrites,
		v.contents, v.trees,
	} {
		if err := check(ctx); err != nil {
			return nil, err
		}
	}
	return v.report, nil
}

func (v *verifier) identity(ctx context.Context) error {
	identity := ledger.Identity()
	err := identity.Check(ctx, v.db, v.report.Path)
	var refused *sqlite.OperatorError
	switch {
	case errors.As(err, &refused):
		return refused
	case sqlite.Code(err) == 26:
		v.found("unreadable", v.report.Path, "it is not a SQLite database, or its first page is damaged")
		return nil
	case err != nil:
		var denied *sqlite.OperatorError
		if errors.As(sqlite.NotReadable(v.report.Path, err), &denied) {
			return denied
		}
		return v.met(ctx, v.report.Path, err)
	}
	return nil
}

func (v *verifier) integrity(ctx context.Context) error {
	var lines []string
	err := v.db.SelectContext(ctx, &lines, `PRAGMA integrity_check(100)`)
	for _, line := range lines {
		if line != "ok" {
			v.found("integrity", "database", "%s", line)
		}
	}
	return v.met(ctx, "integrity_check", err)
}

func (v *verifier) foreignKeys(ctx context.Context) error {
	var rows []struct {
		Table  string        `db:"table"`
		RowID  sql.NullInt64 `db:"rowid"`
		Parent string        `db:"parent"`
		FKID   int64         `db:"fkid"`
	}
	err := v.db.SelectContext(ctx, &rows, `PRAGMA foreign_key_check`)
	for _, row := range rows {
		v.found("foreign_key", fmt.Sprintf("%s row %d", row.Table, row.RowID.Int64), "refers to a missing row of %s", row.Parent)
	}
	return v.met(ctx, "foreign_key_check", err)
}

// guards finds triggers that are missing or changed.
func (v *verifier) guards(ctx context.Context) error {
	broken, err := ledger.BrokenGuards(ctx, v.db)
	for _, name := range broken {
		v.found("guard", name, "the trigger is missing or was changed: protected rows could have been rewritten")
	}
	return v.met(ctx, "sqlite_schema", err)
}

// invariants runs audit_violations as this program defines it: the view in the database may be an
// older one, or may have been changed to report nothing. Damage that the daemon has noted is left
// out, because Verify reads every state.
func (v *verifier) invariants(ctx context.Context) error {
	conn, err := v.db.Connx(ctx)
	if err != nil {
		return v.met(ctx, "audit_violations", err)
	}
	defer conn.Close()
	var statements []string
	var checkpoints int64
	if err := conn.GetContext(ctx, &checkpoints, `SELECT count(*) FROM checkpoints`); err != nil {
		return v.met(ctx, "checkpoints", err)
	}
	body := "length(body)"
	if checkpoints <= narrowMost {
		statements, body = append(statements, narrow...), "body"
	}
	for _, name := range [...]string{"needed_checkpoints", "suspicions", "tree_lists", "audit_violations"} {
		view := strings.Replace(ledger.Views()[name], "CREATE VIEW", "CREATE TEMP VIEW", 1)
		statements = append(statements, strings.ReplaceAll(view, "length(body)", body))
	}
	for _, statement := range statements {
		if _, err := conn.ExecContext(ctx, statement); err != nil {
			return v.met(ctx, "audit_violations", err)
		}
	}
	var rows []Problem
	err = conn.SelectContext(ctx, &rows, `SELECT rule, subject, detail FROM temp.audit_violations WHERE rule <> 'damaged' LIMIT 1000`)
	v.report.Problems = append(v.report.Problems, rows...)
	if err == nil && checkpoints <= narrowMost {
		_, err = conn.ExecContext(ctx, `DROP TABLE temp.checkpoints`) // the connection is used again
	}
	return v.met(ctx, "audit_violations", err)
}

// narrow makes a table of checkpoints without their bodies, which the views of the connection find in place of the real one: the
// invariants read all checkpoints a dozen times. Its column body is the length of the body. The table is in memory.
var narrow = []string{
	`CREATE TEMP TABLE checkpoints AS SELECT slot, n, id, run_id, seq, kind, created_at, size, sha256, operation, pinned, suspect, pieces,
		length(body) AS body FROM main.checkpoints`,
	`CREATE INDEX temp.narrow_slots ON checkpoints (slot)`, `CREATE INDEX temp.narrow_runs ON checkpoints (run_id, kind, seq, n)`,
	`CREATE INDEX temp.narrow_ids ON checkpoints (id)`,
}

// narrowMost is the most checkpoints that are put into a table in memory.
const narrowMost = 200_000

// material checks that the segments are the ones that the checkpoints use, and that the bytes are
// the ones that the runs count.
func (v *verifier) material(ctx context.Context) error {
	var rows []Problem
	err := v.db.SelectContext(ctx, &rows, `WITH used AS MATERIALIZED (
			SELECT DISTINCT json_extract(p.value, '$[0]') AS id FROM checkpoints c,
			json_each(CASE WHEN json_valid(c.pieces) THEN c.pieces ELSE '[]' END) p
		)
		SELECT 'segment_unused' AS rule, 'segment ' || id AS subject, 'no checkpoint of its run uses it' AS detail
		FROM segments WHERE id NOT IN (SELECT id FROM used WHERE id IS NOT NULL)
		UNION ALL
		SELECT 'stored_bytes', a.name || '/' || r.name, 'the run counts ' || r.stored_bytes || ' bytes, there are ' || coalesce(b.bytes,
		0) + coalesce(s.bytes, 0)
		FROM runs r JOIN agents a ON a.id = r.agent_id
		LEFT JOIN (SELECT run_id, sum(length(body)) AS bytes FROM checkpoints GROUP BY run_id) b ON b.run_id = r.id
		LEFT JOIN (SELECT run_id, sum(length(data)) AS bytes FROM segments GROUP BY run_id) s ON s.run_id = r.id
		WHERE r.stored_bytes <> coalesce(b.bytes, 0) + coalesce(s.bytes, 0) LIMIT 1000`)
	v.report.Problems = append(v.report.Problems, rows...)
	return v.met(ctx, "segments", err)
}

func (v *verifier) states(ctx context.Context) error {
	var total, last int64
	if err := v.db.GetContext(ctx, &total, `SELECT count(*) FROM checkpoints`); err != nil {
		return v.met(ctx, "checkpoints", err)
	}
	for {
		n, err := v.someStates(ctx, &last)
		if err != nil {
			return v.met(ctx, fmt.Sprintf("checkpoints after row %d", last), err)
		}
		if n == 0 {
			return nil
		}
		v.progress(v.report.Checkpoints, total)
	}
}

func (v *verifier) someStates(ctx context.Context, last *int64) (int, error) {
	q, err := v.db.BeginTxx(ctx, &sql.TxOptions{ReadOnly: true})
	if err != nil {
		return 0, err
	}
	defer q.Rollback()
	var rows []struct {
		blob.StateRow
		Row int64 `db:"row"`
	}
	bytes := `body, pieces`
	if v.rowsOnly {
		bytes = `NULL AS body, NULL AS pieces`
	}
	err = q.SelectContext(ctx, &rows, `SELECT rowid AS row, n, id, size, sha256, `+bytes+` FROM checkpoints
		WHERE rowid > ? ORDER BY rowid LIMIT 0 + ?`, *last, verifyAtOnce)
	if err != nil {
		return 0, err
	}
	for i := range rows {
		*last = rows[i].Row
		v.report.Checkpoints++
		v.report.StateBytes += rows[i].Size
		if v.rowsOnly {
			continue
		}
		if _, err := blob.Decode(ctx, q, &rows[i].StateRow); err != nil {
			var damage *blob.DamageError
			if !errors.As(err, &damage) && ckpt.CodeOf(err) != ckpt.CodeCorrupt {
				return 0, err
			}
			v.found("damaged", rows[i].ID, "%s", ckpt.AsError(err).Err)
		}
	}
	if len(rows) == 0 {
		return 0, nil
	}
	if err := v.rests(ctx, q, rows[0].Row, *last); err != nil {
		return 0, err
	}
	return len(rows), v.columns(ctx, q, rows[0].Row, *last)
}

// columns checks the other columns of a checkpoint's row.
func (v *verifier) columns(ctx context.Context, q *sqlx.Tx, from, to int64) error {
	var rows []ledger.ReadRow
	err := q.SelectContext(ctx, &rows, `SELECT `+ledger.ReadColumns+ledger.ReadTables+`WHERE c.rowid BETWEEN ? AND ?`, from, to)
	for i := range rows {
		if _, err := rows[i].Checkpoint(); err != nil {
			v.found("damaged", rows[i].ID, "%s", ckpt.AsError(err).Message)
		}
	}
	return err
}
