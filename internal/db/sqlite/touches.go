package sqlite

import (
	"crypto/sha256"
	"database/sql"
	"slices"
	"strings"
	"sync"
)

// touched is what a statement does to the tables of a schema.
type touched struct {
	writes bool
	tables []string
}

// statementOf names a statement of a schema. The result is the same for all databases of one
// schema.
type statementOf struct {
	schema [sha256.Size]byte
	query  string
}

// known holds SQLite's results, for all engines of this process. Queries are constants of the
// program, so it does not grow without bound.
var known sync.Map // of statementOf to touched

// touches asks SQLite which tables a statement writes, and whether it writes at all. Tables that a
// trigger or a foreign key writes are included. It reads the statement's program and not its text.
func (tx *Tx) touches(query string, args []any) (writes bool, tables []string, err error) {
	if tx.stmts.schema == nil {
		if tx.stmts.schema, err = tx.schemaSum(); err != nil {
			return false, nil, err
		}
	}
	key := statementOf{*tx.stmts.schema, query}
	if is, ok := known.Load(key); ok {
		return is.(touched).writes, is.(touched).tables, nil
	}
	if writes, tables, err = tx.explain(query, args); err == nil {
		known.Store(key, touched{writes, tables})
	}
	return writes, tables, err
}

// schemaSum hashes everything that a statement's program depends on: the tables, indexes and
// triggers, and whether foreign keys are enforced.
func (tx *Tx) schemaSum() (*[sha256.Size]byte, error) {
	var all []string
	err := tx.Conn.SelectContext(tx.Ctx, &all, `SELECT type || ' ' || tbl_name || ' ' || coalesce(sql, name) FROM sqlite_schema WHERE type <> 'view'
		UNION ALL SELECT 'foreign_keys ' || foreign_keys FROM pragma_foreign_keys ORDER BY 1`)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256([]byte(strings.Join(all, "\x00")))
	return &sum, nil
}

// explain reads the statement's program.
func (tx *Tx) explain(query string, args []any) (writes bool, tables []string, err error) {
	rows, err := tx.Conn.QueryContext(tx.Ctx, "EXPLAIN "+query, args...)
	if err != nil {
		return false, nil, err
	}
	defer rows.Close()
	roots := map[int64]bool{}
	var opcode string
	var p1, p2 int64
	var unused sql.RawBytes
	for rows.Next() {
		if err := rows.Scan(&unused, &opcode, &p1, &p2, &unused, &unused, &unused, &unused); err != nil {
			return false, nil, err
		}
		switch opcode {
		case "Transaction":
			writes = writes || p2 != 0
		case "OpenWrite":
			roots[p2] = true
		case "Clear": // a DELETE of all rows
			roots[p1] = true
		}
	}
	if err := rows.Err(); err != nil || !writes {
		return writes, nil, err
	}
	_ = rows.Close() // the writer's connection runs one statement at a time
	tables, err = tx.tablesAt(roots)
	return writes, tables, err
}

// tablesAt names the tables that have a table or an index rooted at these pages.
func (tx *Tx) tablesAt(roots map[int64]bool) (tables []string, err error) {
	var all []struct {
		Root  int64  `db:"rootpage"`
		Table string `db:"tbl_name"`
	}
	if err := tx.Conn.SelectContext(tx.Ctx, &all, `SELECT rootpage, tbl_name FROM sqlite_schema WHERE rootpage > 0`); err != nil {
		return nil, err
	}
	for _, one := range all {
		if roots[one.Root] && !slices.Contains(tables, one.Table) {
			tables = append(tables, one.Table)
		}
	}
	return tables, nil
}
