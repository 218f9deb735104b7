package ledger

import (
	"strings"
	"testing"
	"testing/fstest"

	"github.com/jmoiron/sqlx"
)

// TestStepUp: the files of the versions above a database's run in the order of their names, and a
// file that is not named for a version is an error.
func TestStepUp(t *testing.T) {
	files := fstest.MapFS{
		"migrations/README.md":      {Data: []byte("not SQL")},
		"migrations/0002_first.sql": {Data: []byte("INSERT INTO t VALUES ('2 first')")},
		"migrations/0002_more.sql":  {Data: []byte("INSERT INTO t VALUES ('2 more')")},
		"migrations/0003_last.sql":  {Data: []byte("INSERT INTO t VALUES ('3 last')")},
	}
	db, err := sqlx.Open("sqlite", ":memory:")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	conn, err := db.Connx(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for version, want := range map[int64]string{1: "2 first, 2 more, 3 last", 2: "3 last", 3: ""} {
		if _, err := conn.ExecContext(t.Context(), `DROP TABLE IF EXISTS t; CREATE TABLE t (x)`); err != nil {
			t.Fatal(err)
		}
		if err := stepUp(t.Context(), conn, files, version); err != nil {
			t.Fatal(err)
		}
		var ran []string
		if err := conn.SelectContext(t.Context(), &ran, `SELECT x FROM t ORDER BY rowid`); err != nil || strings.Join(ran, ", ") != want {
			t.Errorf("from version %d: %q, %v", version, ran, err)
		}
	}
	if err := stepUp(t.Context(), conn, migrations, 0); err != nil {
		t.Errorf("the folder of this program: %v", err)
	}
	files["migrations/next.sql"] = &fstest.MapFile{Data: []byte("SELECT 1")}
	if err := stepUp(t.Context(), conn, files, 1); err == nil || !strings.Contains(err.Error(), "next.sql is not named for a version") {
		t.Errorf("%v", err)
	}
}
