package ckptsidecar_test

import (
	"database/sql"
	"database/sql/driver"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"modernc.org/sqlite"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/daemon"
	"github.com/ckptsidecar/ckptsidecar/internal/ipc"
)

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestConfigurationDescribesEverySetting(t *testing.T) {
	doc := read(t, "docs/CONFIGURATION.md")
	var c daemon.Config
	for _, s := range c.Settings() {
		if !strings.Contains(doc, "| `"+s.Key+"`<br>"+s.Doc+" | `"+s.Env+"` |") {
			t.Errorf("docs/CONFIGURATION.md does not describe %s as the program does: %s", s.Key, s.Doc)
		}
	}
}

// The sqlite3 command has this function. Here it only has to exist.
var withUncompress = sync.OnceFunc(func() {
	sqlite.MustRegisterScalarFunction("sqlar_uncompress", 2, func(*sqlite.FunctionContext, []driver.Value) (driver.Value, error) {
		return nil, nil
	})
})

func TestAuditDescribesEveryViewAndColumn(t *testing.T) {
	doc := read(t, "docs/AUDIT_REFERENCE.md")
	withUncompress()
	db, err := sql.Open("sqlite", ":memory:")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	db.SetMaxOpenConns(1)
	if _, err := db.ExecContext(t.Context(), ckpt.Schema); err != nil {
		t.Fatal(err)
	}
	rows, err := db.QueryContext(t.Context(), `SELECT m.name, group_concat(c.name, ', ') FROM sqlite_schema m, pragma_table_info(m.name) c
		WHERE m.name LIKE 'audit\_%' ESCAPE '\' AND m.type = 'view' GROUP BY m.name`)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	found := 0
	for rows.Next() {
		var view, columns string
		if err := rows.Scan(&view, &columns); err != nil {
			t.Fatal(err)
		}
		found++
		if !regexp.MustCompile("(?m)^\\| `" + view + "` \\|.*\\| " + columns + " \\|$").MatchString(doc) {
			t.Errorf("docs/AUDIT_REFERENCE.md does not describe %s with the columns %s", view, columns)
		}
	}
	if err := rows.Err(); err != nil || found < 11 {
		t.Errorf("%d views were found, error %v", found, err)
	}
}

func TestAuditDescribesEveryRule(t *testing.T) {
	doc := read(t, "docs/AUDIT_REFERENCE.md")
	_, violations, _ := strings.Cut(ckpt.Schema, "CREATE VIEW audit_violations")
	rules := regexp.MustCompile(`(?m)^SELECT '([a-z_]+)',`).FindAllStringSubmatch(violations, -1)
	if len(rules) < 5 {
		t.Fatalf("only %d rules were found", len(rules))
	}
	for _, rule := range rules {
		if !strings.Contains(doc, "`"+rule[1]+"`") {
			t.Errorf("docs/AUDIT_REFERENCE.md does not say what %s means", rule[1])
		}
	}
}

// TestAuditDescribesEveryAction compares the table of actions with the names in the source of the store.
func TestAuditDescribesEveryAction(t *testing.T) {
	doc := read(t, "docs/AUDIT_REFERENCE.md")
	_, table, _ := strings.Cut(doc, "| action | what happened |")
	table, _, _ = strings.Cut(table, "\n\n")
	named := regexp.MustCompile(`(?:\b(?:Entry|ChangeEntry|DaemonEntry|stepWrite)\([^"\n]*|\bAction: |\b[aA]ction(?:, [\w.]+)* :?= )"([a-z_]*[a-z])"`)
	actions := map[string]bool{}
	err := filepath.WalkDir("internal/db", func(path string, d fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		for _, match := range named.FindAllStringSubmatch(read(t, path), -1) {
			actions[match[1]] = true
		}
		return nil
	})
	if err != nil || len(actions) < 50 {
		t.Fatalf("%d actions were found, error %v", len(actions), err)
	}
	for _, action := range slices.Sorted(maps.Keys(actions)) {
		if !strings.HasPrefix(action, "admin_") && !regexp.MustCompile("(?m)^\\| [^|]*`"+action+"`[^|]* \\|").MatchString(table) {
			t.Errorf("docs/AUDIT_REFERENCE.md does not say what %s means", action)
		}
	}
}

// TestTroubleshootingListsEveryCode compares the page with the codes and
// statuses of the API and the exit codes of the command.
func TestTroubleshootingListsEveryCode(t *testing.T) {
	doc := read(t, "docs/TROUBLESHOOTING.md")
	for _, code := range ckpt.Codes {
		row := fmt.Sprintf("\n| `%s` | %d |", code, ipc.Kinds[code].Status)
		if !strings.Contains(doc, row) {
			t.Errorf("docs/TROUBLESHOOTING.md has no row %q", row)
		}
	}
	for _, name := range []string{"internal/cli/errors.go", "internal/daemon/end.go"} {
		for _, m := range regexp.MustCompile(`\n\tExit[A-Z]\w+ *= (\d+)`).FindAllStringSubmatch(read(t, name), -1) {
			if !strings.Contains(doc, "\n| "+m[1]+" |") {
				t.Errorf("docs/TROUBLESHOOTING.md does not explain the exit code %s", m[1])
			}
		}
	}
}

func TestLinksOfTheDocumentsLeadSomewhere(t *testing.T) {
	files, err := filepath.Glob("docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	link, code := regexp.MustCompile(`\]\(([^)#:]+)(#[^)]*)?\)`), regexp.MustCompile("(?s)\n```.*?\n```")
	for _, file := range append(files, "README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md") {
		for _, m := range link.FindAllStringSubmatch(code.ReplaceAllString(read(t, file), ""), -1) {
			if _, err := os.Stat(filepath.Join(filepath.Dir(file), m[1])); err != nil {
				t.Errorf("%s has a link to %s: %v", file, m[1], err)
			}
		}
	}
}
