package db

import (
	"context"
	"regexp"
	"slices"
	"strings"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/jmoiron/sqlx"
)

var (
	triggerText = regexp.MustCompile(`(?s)CREATE TRIGGER IF NOT EXISTS (\w+) .*?END;\n`)
	viewText    = regexp.MustCompile(`(?s)CREATE VIEW (\w+) .*?;\n`)
)

// statementsOf finds statements of the schema by the name of what they make.
func statementsOf(text *regexp.Regexp) map[string]string {
	all := map[string]string{}
	for _, match := range text.FindAllStringSubmatch(ckpt.Schema, -1) {
		all[match[1]] = match[0]
	}
	return all
}

// guards are the triggers of the schema, by name. Each is a statement that may
// run where the trigger is there already.
var guards = statementsOf(triggerText)

// plain is a trigger's statement as far as it matters: neither spacing nor the
// words that SQLite leaves out when it stores it.
func plain(statement string) string {
	statement = strings.Replace(statement, "IF NOT EXISTS ", "", 1)
	return strings.TrimSuffix(strings.Join(strings.Fields(statement), " "), ";")
}

// brokenGuards names the triggers of the schema that a database lacks or has
// otherwise, in order.
func brokenGuards(ctx context.Context, q sqlx.QueryerContext) ([]string, error) {
	var there []struct {
		Name string `db:"name"`
		SQL  string `db:"sql"`
	}
	if err := sqlx.SelectContext(ctx, q, &there, `SELECT name, sql FROM sqlite_schema WHERE type = 'trigger'`); err != nil {
		return nil, err
	}
	broken := map[string]bool{}
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

// restoreGuards puts back the triggers that a database lacks or has otherwise.
func (s *core) restoreGuards(ctx context.Context) error {
	broken, err := brokenGuards(ctx, s.engine.Writing())
	if err != nil || len(broken) == 0 {
		return err
	}
	s.log.Error("triggers that keep rows from being rewritten by hand are missing or were changed: run ckptsidecar verify", "triggers", broken, "path", s.opt.Path)
	s.trust.guards = broken
	if s.engine.ReadOnly() != "" {
		return nil
	}
	var script strings.Builder
	for _, name := range broken {
		script.WriteString("DROP TRIGGER IF EXISTS " + name + ";\n" + guards[name])
	}
	return s.engine.Patiently(ctx, func() error {
		conn, err := s.engine.Writing().Connx(ctx)
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
