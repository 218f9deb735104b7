package sqlite

import (
	"fmt"
	"path/filepath"
	"testing"
)

// TestKeptStatements: a connection that keeps statements returns the same
// results as any other: for nested queries, after errors, with more statements
// than it keeps, and when the tables change.
func TestKeptStatements(t *testing.T) {
	ok := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	path := filepath.Join(t.TempDir(), "x.db")
	rw, err := pool(path, "rwc", 1, nil)
	ok(err)
	defer rw.Close()
	_, err = rw.Exec(`CREATE TABLE t (n INTEGER PRIMARY KEY, text TEXT); INSERT INTO t VALUES (1, 'a'), (2, 'b'), (3, 'c')`)
	ok(err)
	ro, err := readers(path, 1, func(error) {})
	ok(err)
	defer ro.Close()

	q, err := ro.Beginx()
	ok(err)
	var pairs []string
	outer, err := q.Queryx(`SELECT n FROM t WHERE n < ? ORDER BY n`, 3)
	ok(err)
	for outer.Next() {
		var a int
		ok(outer.Scan(&a))
		inner, err := q.Queryx(`SELECT n FROM t WHERE n < ? ORDER BY n`, 4) // the same text
		ok(err)
		for inner.Next() {
			var b int
			ok(inner.Scan(&b))
			pairs = append(pairs, fmt.Sprint(a, b))
		}
		ok(inner.Err())
	}
	ok(outer.Err())
	ok(q.Rollback())
	if fmt.Sprint(pairs) != "[1 1 1 2 1 3 2 1 2 2 2 3]" {
		t.Errorf("one inside the other: %v", pairs)
	}

	for i := range 3 * statementsMost {
		var n int
		ok(ro.Get(&n, fmt.Sprintf(`SELECT n + %d FROM t WHERE text = ?`, i), "b"))
		if n != 2+i {
			t.Fatalf("statement %d answers %d", i, n)
		}
		if _, err := ro.Query(`SELECT nothing FROM t`); err == nil {
			t.Fatal("a column that is not there was read")
		}
	}

	var text string
	ok(ro.Get(&text, `SELECT text FROM t WHERE n = ?`, 2))
	_, err = rw.Exec(`ALTER TABLE t ADD COLUMN more TEXT DEFAULT 'x'; UPDATE t SET text = 'changed' WHERE n = 2`)
	ok(err)
	for range 2 {
		var row struct {
			N    int
			Text string
			More *string
		}
		ok(ro.Get(&text, `SELECT text FROM t WHERE n = ?`, 2))
		ok(ro.Get(&row, `SELECT * FROM t WHERE n = ?`, 2))
		if text != "changed" || row.Text != "changed" || row.More == nil || *row.More != "x" {
			t.Errorf("after a change of the table: %q, %+v", text, row)
		}
	}
	_, err = rw.Exec(`DROP TABLE t`)
	ok(err)
	if err := ro.Get(&text, `SELECT text FROM t WHERE n = ?`, 2); err == nil {
		t.Errorf("a table that is gone answers %q", text)
	}
}
