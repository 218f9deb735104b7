package sqlite

import (
	"fmt"
	"slices"
)

// touches asks SQLite which tables a statement writes, and whether it writes at
// all: what a trigger or a foreign key writes in turn is among them. It looks at
// the statement's program and not at its text.
func (tx *Tx) touches(query string, args []any) (writes bool, tables []string, err error) {
	rows, err := tx.Conn.QueryxContext(tx.Ctx, "EXPLAIN "+query, args...)
	if err != nil {
		return false, nil, err
	}
	defer rows.Close()
	roots := map[int64]bool{}
	for rows.Next() {
		step := map[string]any{}
		if err := rows.MapScan(step); err != nil {
			return false, nil, err
		}
		p1, _ := step["p1"].(int64)
		p2, _ := step["p2"].(int64)
		switch fmt.Sprint(step["opcode"]) {
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
	_ = rows.Close() // one statement at a time on the writer's connection
	tables, err = tx.tablesAt(roots)
	return writes, tables, err
}

// tablesAt names the tables of which something begins at these pages.
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
