package copy

import (
	"context"
	"path/filepath"
	"slices"
	"testing"

	"github.com/jmoiron/sqlx"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db/sqlite"
)

// TestEveryTableIsDecided asks about each table of the schema whether its rows belong to an agent, and about each of its
// columns whether a copy has it.
func TestEveryTableIsDecided(t *testing.T) {
	err := sqlite.Fill(t.Context(), filepath.Join(t.TempDir(), "schema.db"), func(to *sqlx.Conn) error {
		if _, err := to.ExecContext(t.Context(), ckpt.Schema); err != nil {
			return err
		}
		var there []string
		if err := to.SelectContext(t.Context(), &there, `SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%'`); err != nil {
			return err
		}
		for _, name := range there {
			decided(t.Context(), t, to, name)
		}
		for _, copied := range tables {
			if !slices.Contains(there, copied.name) {
				t.Errorf("the schema has no table %s", copied.name)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func decided(ctx context.Context, t *testing.T, to *sqlx.Conn, name string) {
	t.Helper()
	at := slices.IndexFunc(tables, func(c *table) bool { return c.name == name })
	_, others := notOfAgents[name]
	own := name == "meta" // what a file says about itself
	switch {
	case at < 0 && !others && !own:
		t.Errorf("%s: say in tables how its rows hang on an agent, or in notOfAgents why they do not", name)
	case at >= 0 && (others || own):
		t.Errorf("%s is decided twice", name)
	}
	if at < 0 {
		return
	}
	var columns, has []string
	if err := to.SelectContext(ctx, &columns, `SELECT name FROM pragma_table_info(?)`, name); err != nil {
		t.Fatal(err)
	}
	for i := range tables[at].columns {
		has = append(has, tables[at].columns[i].name)
	}
	slices.Sort(columns)
	slices.Sort(has)
	if !slices.Equal(columns, has) {
		t.Errorf("%s has the columns %v, and the copy %v", name, columns, has)
	}
}
