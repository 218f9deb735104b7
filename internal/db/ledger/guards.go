package ledger

import (
	"context"
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

// plain is the text of a trigger's statement without spacing and without the words that SQLite
// leaves out when it stores the statement.
func plain(statement string) string {
	statement = strings.Replace(statement, "IF NOT EXISTS ", "", 1)
	return strings.TrimSuffix(strings.Join(strings.Fields(statement), " "), ";")
}

// BrokenGuards names the triggers of the schema that a database lacks or has in another form, in
// order.
func BrokenGuards(ctx context.Context, q sqlx.QueryerContext) ([]string, error) {
	var there []struct {
		Name string `db:"name"`
		SQL  string `db:"sql"`
	}
	if err := sqlx.SelectContext(ctx, q, &there, `SELECT name, sql FROM sqlite_schema WHERE type = 'trigger'`); err != nil {
		return nil, err
	}
	guards, broken := Guards(), map[string]bool{}
	for name := range guards {
		broken[name] = true
	}
	for _, t := range there {
		if plain(t.SQL) == plain(guards[t.Name]) {
			delete(broken, t.Name)
		}
	}
	names := make([]string, 0, len(broken))
	for name := range broken {
		names = append(names, name)
	}
	slices.Sort(names)
	return names, nil
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
	var script strings.Builder
	for _, name := range broken {
		script.WriteString("DROP TRIGGER IF EXISTS " + name + ";\n" + Guards()[name])
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
