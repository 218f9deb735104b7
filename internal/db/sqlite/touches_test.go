package sqlite

import (
	"path/filepath"
	"slices"
	"testing"
)

// TestTouches: SQLite reports which tables a statement writes, in whatever form
// it is written, including those that triggers and foreign keys write.
func TestTouches(t *testing.T) {
	db, err := pool(filepath.Join(t.TempDir(), "x.db"), "rwc", 1, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	db.MustExec(`PRAGMA foreign_keys = 1; CREATE TABLE a (n INTEGER PRIMARY KEY, x TEXT UNIQUE); CREATE INDEX ax ON a (x, n);
		CREATE TABLE b (id TEXT PRIMARY KEY) WITHOUT ROWID; CREATE TABLE log (what TEXT); CREATE TABLE child (n INTEGER REFERENCES a (n) ON DELETE CASCADE);
		CREATE TRIGGER told AFTER INSERT ON b BEGIN INSERT INTO log VALUES (NEW.id); END`)
	conn, err := db.Connx(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	tx := &Tx{Ctx: t.Context(), Conn: conn, hooks: noHooks{}, stmts: newStatements()}
	for query, want := range map[string][]string{
		`SELECT * FROM a WHERE n = ?`:                                 nil,
		`INSERT INTO a (n) VALUES (?)`:                                {"a"},
		`INSERT OR REPLACE INTO a (n) VALUES (?)`:                     {"a", "child"},
		"DELETE\nFROM a\nWHERE n = ?":                                 {"a", "child"},
		`WITH old AS (SELECT ? AS n) UPDATE a SET x = 'y' FROM old`:   {"a"},
		`WITH old AS (SELECT ? AS n) DELETE FROM log WHERE rowid > 0`: {"log"},
		`INSERT INTO b (id) VALUES (?)`:                               {"b", "log"},
		`DELETE FROM b WHERE id = ? RETURNING id`:                     {"b"},
	} {
		writes, tables, err := tx.touches(query, []any{1})
		slices.Sort(tables)
		if err != nil || writes != (want != nil) || !slices.Equal(tables, want) {
			t.Errorf("%s writes %v, %v, %v; want %v", query, writes, tables, err, want)
		}
	}
	if _, err := conn.ExecContext(t.Context(), `DROP TRIGGER told`); err != nil {
		t.Fatal(err)
	}
	other := &Tx{Ctx: t.Context(), Conn: conn, hooks: noHooks{}, stmts: newStatements()}
	if _, tables, err := other.touches(`INSERT INTO b (id) VALUES (?)`, []any{1}); err != nil || !slices.Equal(tables, []string{"b"}) {
		t.Errorf("in a schema without the trigger it writes %v, %v", tables, err)
	}
	if writes, tables, err := tx.touches(`DELETE FROM log`, nil); err != nil || !writes || !slices.Equal(tables, []string{"log"}) {
		t.Errorf("all rows: %v, %v, %v", writes, tables, err)
	}
	if writes, _, err := tx.touches(`PRAGMA secure_delete = 1`, nil); err != nil || writes {
		t.Errorf("a pragma: %v, %v", writes, err)
	}
}
