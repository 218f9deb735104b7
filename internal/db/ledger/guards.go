package ledger

import (
	"context"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/jmoiron/sqlx"
)

// Guards returns the triggers of the schema, by name. Each statement can also run if its trigger
// already exists.
var Guards = statementsOf(`(?s)CREATE TRIGGER IF NOT EXISTS (\w+) .*?END;\n`)

// Views returns the views of the schema, by name.
var Views = statementsOf(`(?s)CREATE VIEW (\w+) .*?;\n`)

// statementsOf finds statements of the schema by the name of what they create. The first call of
// the result searches the schema. Most commands never call it, so they start sooner.
func statementsOf(text string) func() map[string]string {
	return sync.OnceValue(func() map[string]string {
		all := map[string]string{}
		for _, match := range regexp.MustCompile(text).FindAllStringSubmatch(ckpt.Schema, -1) {
			all[match[1]] = match[0]
		}
		return all
	})
}

// plain is the text of a statement without spacing and without the words that SQLite
// leaves out when it stores the statement.
func plain(statement string) string {
	statement = strings.Replace(statement, "IF NOT EXISTS ", "", 1)
	return strings.TrimSuffix(strings.Join(strings.Fields(statement), " "), ";")
}

// BrokenGuards names the triggers of the schema that a database lacks or has in another form, in
// order.
func BrokenGuards(ctx context.Context, q sqlx.QueryerContext) ([]string, error) {
	return differing(ctx, q, "trigger", Guards())
}

// differing names the statements whose trigger or view a database lacks or has in another form, in
// order.
func differing(ctx context.Context, q sqlx.QueryerContext, kind string, statements map[string]string) ([]string, error) {
	var there []struct {
		Name string `db:"name"`
		SQL  string `db:"sql"`
	}
	if err := sqlx.SelectContext(ctx, q, &there, `SELECT name, sql FROM sqlite_schema WHERE type = ?`, kind); err != nil {
		return nil, err
	}
	broken := map[string]bool{}
	for name := range statements {
		broken[name] = true
	}
	for _, t := range there {
		if statement := statements[t.Name]; statement != "" && plain(t.SQL) == plain(statement) {
			delete(broken, t.Name)
		}
	}
	return slices.Sorted(maps.Keys(broken)), nil
}

// restoreGuards restores the triggers that a database lacks or has in another form.
func (s *Core) restoreGuards(ctx context.Context) error {
	broken, err := BrokenGuards(ctx, s.Engine.Writing())
	if err != nil || len(broken) == 0 {
		return err
	}
	s.Log.Error("triggers that keep rows from being rewritten by hand are missing or were changed: run ckptsidecar verify",
		"triggers", broken, "path", s.Opt.Path)
	s.Trust.Guards = broken
	if s.Engine.ReadOnly() != "" {
		return nil
	}
	return s.makeAnew(ctx, "TRIGGER", broken, Guards())
}

// refreshViews makes the views anew that a database lacks or has in another form. A program with the same tables may
// have had other views, and auditors must see the rules of this one.
func (s *Core) refreshViews(ctx context.Context) error {
	old, err := differing(ctx, s.Engine.Writing(), "view", Views())
	if err != nil || len(old) == 0 || s.Engine.ReadOnly() != "" {
		return err
	}
	s.Log.Info("made views for auditors anew, because this program has others", "views", old)
	return s.makeAnew(ctx, "VIEW", old, Views())
}

// makeAnew drops triggers or views and creates them, in one transaction.
func (s *Core) makeAnew(ctx context.Context, kind string, names []string, statements map[string]string) error {
	var script strings.Builder
	for _, name := range names {
		script.WriteString("DROP " + kind + " IF EXISTS " + name + ";\n" + statements[name])
	}
	return s.Engine.Patiently(ctx, func() error {
		conn, err := s.Engine.Writing().Connx(ctx)
		if err != nil {
			return err
		}
		defer conn.Close()
		if _, err := conn.ExecContext(ctx, "BEGIN IMMEDIATE"); err != nil {
			return err
		}
		_, err = conn.ExecContext(ctx, script.String()+"COMMIT")
		if err != nil {
			_, _ = conn.ExecContext(ctx, "ROLLBACK")
		}
		return err
	})
}
