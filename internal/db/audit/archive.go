package audit

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/jmoiron/sqlx"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db/ledger"
	"github.com/ckptsidecar/ckptsidecar/internal/db/sqlite"
)

// An archive is a database file of the same schema with only a part of the audit log: the rows, the texts that are
// stored beside them, the names in them, the hash of the row before the first, and which agents were erased later,
// whose texts are gone. So an archive can be verified on its own, and the auditors' views work in it.

// namedBefore selects the rows before the first that the rows of the archive name, because the
// views show them. ?1 is the first row, ?2 the last.
const namedBefore = `(SELECT gone AS n FROM acts WHERE n BETWEEN ?1 AND ?2 AND gone < ?1 UNION SELECT parent FROM acts
	WHERE n BETWEEN ?1 AND ?2 AND parent < ?1
	UNION SELECT json_extract(e.value, '$[0]') FROM acts a, json_each(a.more, '$.removed') e
	WHERE a.n BETWEEN ?1 AND ?2 AND a.more IS NOT NULL AND json_extract(e.value, '$[0]') < ?1)`

const archivedRows = `(n BETWEEN ?1 AND ?2 OR n IN ` + namedBefore + `)`

// archiveTables are the tables that are copied.
var archiveTables = []struct{ name, query string }{
	{"meta", `SELECT key, value FROM meta WHERE key IN ('database_id', 'created_at', 'chain_key', 'schema') AND ?1 <= ?2
		UNION ALL SELECT 'erased_later', json_group_array(json_array(owner, agent, n)) FROM (
			SELECT p.owner AS owner, p.agent AS agent, a.n AS n FROM acts a JOIN places p ON p.id = a.place
			WHERE a.action = 'erase' AND a.outcome IS NULL AND a.n > ?2
			UNION ALL SELECT from_owner, agent, n FROM owner_changes WHERE agent_id NOT IN (SELECT id FROM agents))`},
	{"places", `SELECT * FROM places WHERE id IN (SELECT place FROM acts WHERE ` + archivedRows + `)`},
	{"acts", `SELECT * FROM acts WHERE ` + archivedRows},
	{"act_texts", `SELECT * FROM act_texts WHERE ` + archivedRows},
	{"audit_archives", `SELECT * FROM audit_archives WHERE to_n < ?1 AND ?2 ORDER BY to_n`},
	{"audit_links", `SELECT n - 1, hash FROM (SELECT e.n,
		` + ledger.HashOf("e.n - 1") + ` AS hash FROM (SELECT ?1 AS n
		UNION SELECT n FROM ` + namedBefore + `) e) WHERE hash IS NOT NULL`},
}

// Archive writes the rows of the audit log that are older than a time into a new file in a folder,
// and checks the file. It returns nil if there are no such rows. It only reads the database;
// ledger.RecordArchive does the next step. If an interrupted earlier call has left a file and the
// file is sound, Archive uses it. progress may be nil.
func Archive(ctx context.Context, path, folder string, now, before time.Time, progress func(done, total int64)) (*ckpt.AuditArchive, error) {
	if err := archivable(now, before); err != nil {
		return nil, err
	}
	db, done, err := sqlite.OpenBeside(path, 1)
	if err != nil {
		return nil, err
	}
	defer done()
	identity := ledger.Identity()
	if err := identity.Check(ctx, db, path); err != nil {
		return nil, err
	}
	a, err := planArchive(ctx, db, before)
	if err != nil || a == nil {
		return nil, err
	}
	out := filepath.Join(folder, a.Name)
	if _, err := os.Lstat(out); err != nil {
		err := sqlite.Make(ctx, out, func(made *sqlx.Conn) error { return fillArchive(ctx, db, made, a) },
			func(made string) error { return approve(ctx, made, a, progress) })
		if err != nil {
			return nil, err
		}
	} else if err := approve(ctx, out, a, progress); err != nil {
		return nil, err
	}
	a.SHA256, a.Bytes, err = fileHash(out)
	return a, err
}

func archivable(now, before time.Time) error {
	if now.Sub(before) < ledger.ArchiveMinAge {
		return ckpt.Errorf(ckpt.CodeInvalid, "rows of the last %s must stay in the database: give a time before %s",
			ckpt.Duration(ledger.ArchiveMinAge), ckpt.At(now.Add(-ledger.ArchiveMinAge)))
	}
	return nil
}

// planArchive finds the rows: from the end of the previous archive up to the first row that is not
// older.
func planArchive(ctx context.Context, db *sqlx.DB, before time.Time) (*ckpt.AuditArchive, error) {
	var row struct {
		From int64  `db:"from_n"`
		To   int64  `db:"to_n"`
		ID   string `db:"id"`
	}
	err := db.GetContext(ctx, &row, `SELECT coalesce((SELECT max(to_n) FROM audit_archives), 0) + 1 AS from_n, (SELECT value
		FROM meta WHERE key = 'database_id') AS id,
		min((SELECT n FROM audit_head), coalesce((SELECT min(n) FROM acts WHERE at >= ?1), 1 << 62)) - 1 AS to_n`, before.UnixMilli())
	if err != nil || row.To < row.From {
		return nil, err
	}
	a := &ckpt.AuditArchive{FromN: row.From, ToN: row.To, Name: fmt.Sprintf("audit-%s-%09d-%09d.db", row.ID[:8], row.From, row.To)}
	err = db.GetContext(ctx, &a.Hash, `SELECT `+ledger.HashOf(`?1`), row.To)
	return a, err
}

// fillArchive copies the rows. It runs the schema twice: first only the tables, because the guards
// would refuse some rows, and the whole schema after the rows.
func fillArchive(ctx context.Context, db *sqlx.DB, made *sqlx.Conn, a *ckpt.AuditArchive) error {
	begin := []string{`PRAGMA page_size = ` + fmt.Sprint(sqlite.PageSize), `BEGIN`, ckpt.SchemaTables()}
	for _, statement := range begin {
		if _, err := made.ExecContext(ctx, statement); err != nil {
			return err
		}
	}
	for _, table := range archiveTables {
		if err := copyRows(ctx, db, made, table.name, table.query, a); err != nil {
			return fmt.Errorf("%s: %w", table.name, err)
		}
	}
	end := []string{
		ckpt.Schema, fmt.Sprintf(`PRAGMA application_id = %d`, ckpt.ApplicationID), fmt.Sprintf(`PRAGMA user_version = %d`, ckpt.SchemaVersion), `COMMIT`,
	}
	for _, statement := range end {
		if _, err := made.ExecContext(ctx, statement); err != nil {
			return err
		}
	}
	return nil
}

// copyRows copies the result of a query into a table.
func copyRows(ctx context.Context, db *sqlx.DB, made *sqlx.Conn, table, query string, a *ckpt.AuditArchive) error {
	rows, err := db.QueryxContext(ctx, query, a.FromN, a.ToN)
	if err != nil {
		return err
	}
	defer rows.Close()
	columns, err := rows.Columns()
	if err != nil {
		return err
	}
	insert, err := made.PreparexContext(ctx, `INSERT INTO `+table+` VALUES (?`+strings.Repeat(`, ?`, len(columns)-1)+`)`)
	if err != nil {
		return err
	}
	defer insert.Close()
	for rows.Next() {
		values, err := rows.SliceScan()
		if err != nil {
			return err
		}
		if _, err := insert.ExecContext(ctx, values...); err != nil {
			return err
		}
	}
	return rows.Err()
}

// approve checks an archive as Verify does, and checks its end.
func approve(ctx context.Context, path string, a *ckpt.AuditArchive, progress func(done, total int64)) error {
	report, err := Verify(ctx, path, progress)
	if err != nil {
		return err
	}
	if len(report.Problems) > 0 {
		return fmt.Errorf("the archive %s failed verification, so nothing was archived: %s", a.Name, report.Problems[0])
	}
	if report.AuditHead != a.Hash || report.AuditRows < a.ToN-a.FromN+1 {
		return fmt.Errorf("the archive %s has %d rows up to hash %s, but needs %d rows up to %s: remove it and try again",
			a.Name, report.AuditRows, report.AuditHead, a.ToN-a.FromN+1, a.Hash)
	}
	return nil
}

func fileHash(path string) (hash string, bytes int64, err error) {
	f, err := os.Open(path)
	if err != nil {
		return "", 0, err
	}
	defer f.Close()
	sum := sha256.New()
	bytes, err = io.Copy(sum, f)
	return hex.EncodeToString(sum.Sum(nil)), bytes, err
}

// VerifyArchives checks the archives of a database in a folder: each by itself, that each continues
// where the previous one ends, and that each is the file that the database has recorded. heads may
// be nil; heads of archived rows are looked for in the archives.
func VerifyArchives(ctx context.Context, path, folder string, heads []Head, progress func(done, total int64)) ([]*VerifyReport, error) {
	db, done, err := sqlite.OpenBeside(path, 1)
	if err != nil {
		return nil, err
	}
	defer done()
	var list []ckpt.AuditArchive
	if err := db.SelectContext(ctx, &list, `SELECT from_n, to_n, hash, name, sha256, bytes FROM audit_archives ORDER BY to_n`); err != nil {
		return nil, err
	}
	reports := make([]*VerifyReport, 0, len(list))
	for _, a := range list {
		var within []Head
		for _, head := range heads {
			if head.N >= a.FromN && head.N <= a.ToN {
				within = append(within, head)
			}
		}
		report, err := verifyArchive(ctx, filepath.Join(folder, a.Name), a, within, progress)
		if err != nil {
			return nil, err
		}
		reports = append(reports, report)
	}
	return reports, nil
}

func verifyArchive(ctx context.Context, file string, a ckpt.AuditArchive, heads []Head, progress func(done, total int64)) (*VerifyReport, error) {
	hash, _, err := fileHash(file)
	if err != nil {
		return &VerifyReport{Path: file, Problems: []Problem{{"audit_archive", a.Name, fmt.Sprintf("cannot be read: %v", err)}}}, nil
	}
	report, err := verify(ctx, file, heads, progress)
	if err != nil {
		return nil, err
	}
	if hash != a.SHA256 {
		report.Problems = append(report.Problems, Problem{"audit_archive", a.Name,
			"it is not the file that was archived: its SHA-256 is " + hash + ", the database has recorded " + a.SHA256})
	}
	if report.AuditHead != a.Hash {
		report.Problems = append(report.Problems, Problem{"audit_archive", a.Name,
			fmt.Sprintf("it ends with the hash %s, and the database continues from %s", report.AuditHead, a.Hash)})
	}
	return report, nil
}
