package pg_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// allowed are the words that the SQL of this package may contain besides the names of tables and columns: what
// PostgreSQL 13, CockroachDB, YugabyteDB, Aurora and AlloyDB have in common. Advisory locks, LISTEN, SEQUENCE,
// TRIGGER, FUNCTION, SKIP LOCKED, large objects and two-phase commits are not allowed.
var allowed = strings.Fields(`SELECT INSERT INTO UPDATE DELETE FROM WHERE SET VALUES ON CONFLICT DO NOTHING JOIN LEFT AS AND OR NOT IN IS NULL ANY ORDER BY DESC LIMIT GROUP UNION ALL
	RETURNING CREATE TABLE UNIQUE INDEX IF EXISTS PRIMARY KEY SHOW ALTER ADD COLUMN REPLACE VIEW
	unnest coalesce count sum octet_length clock_timestamp excluded text bigint bytea timestamptz interval version has_table_privilege pg_stat_replication
	transaction_read_only synchronous_commit synchronous_standby_names fsync transaction_isolation sync_state sync quorum pid
	idle_in_transaction_session_timeout lock_timeout statement_timeout transaction_timeout tcp_user_timeout
	tcp_keepalives_idle tcp_keepalives_interval tcp_keepalives_count
	a c e f h j m o r s u w x`)

var (
	sqlWord  = regexp.MustCompile(`[A-Za-z_][A-Za-z0-9_]*`)
	sqlBegin = regexp.MustCompile(`^\s*(SELECT|INSERT|UPDATE|DELETE|CREATE|SET|SHOW|ALTER|DROP|GRANT|WITH|LOCK|BEGIN|COMMIT|CALL|LISTEN|NOTIFY|TRUNCATE|MERGE|COPY)\b`)
	ddlNames = regexp.MustCompile(`([a-z_]+) (?:text|bigint|bytea|timestamptz)\b`)
	ddlTable = regexp.MustCompile(`(?:TABLE|INDEX) IF NOT EXISTS ([a-z_]+)`)
	renamed  = regexp.MustCompile(`AS ([a-z_0-9]+)[ ,\n]|(?:REPLACE VIEW) ([a-z_]+)`)
	aliases  = regexp.MustCompile(`AS [uh]\(([a-z_, ]+)\)`)
	inQuotes = regexp.MustCompile(`'[^']*'`)
)

// TestSubset is T11: it reads every SQL statement of this package, and fails for a word outside the subset that all
// named engines have.
func TestSubset(t *testing.T) {
	t.Parallel()
	statements := literals(t)
	if len(statements) < 50 {
		t.Fatalf("only %d pieces of SQL were found", len(statements))
	}
	known := map[string]bool{}
	for _, w := range allowed {
		known[w] = true
	}
	for _, s := range statements {
		if strings.Contains(s, "CREATE ") || strings.Contains(s, "ALTER ") {
			for _, re := range []*regexp.Regexp{ddlNames, ddlTable} {
				for _, m := range re.FindAllStringSubmatch(s, -1) {
					known[m[1]] = true
				}
			}
			for _, m := range renamed.FindAllStringSubmatch(s, -1) {
				known[m[1]], known[m[2]] = true, true
			}
		}
		for _, m := range aliases.FindAllStringSubmatch(s, -1) {
			for _, name := range strings.Split(m[1], ",") {
				known[strings.TrimSpace(name)] = true
			}
		}
	}
	for _, s := range statements {
		for _, word := range outside(s, known) {
			t.Errorf("%q is not in the subset of SQL that all engines have: %s", word, s)
		}
	}
	// This tests the check itself.
	for _, bad := range []string{`SELECT pg_advisory_lock(1)`, `LISTEN fleet`, `SELECT n FROM fleet_marks FOR UPDATE SKIP LOCKED`, `CREATE SEQUENCE x`, `SELECT lo_create(0)`, `PREPARE TRANSACTION 'x'`} {
		if len(outside(bad, known)) == 0 {
			t.Errorf("%s is let through", bad)
		}
	}
}

func outside(statement string, known map[string]bool) (words []string) {
	for _, word := range sqlWord.FindAllString(inQuotes.ReplaceAllString(statement, ""), -1) {
		if !known[word] {
			words = append(words, word)
		}
	}
	return words
}

// literals returns the texts of this package that are SQL, or parts of it.
func literals(t *testing.T) (list []string) {
	t.Helper()
	paths, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	paths = slices.DeleteFunc(paths, func(p string) bool { return strings.HasSuffix(p, "_test.go") })
	for _, path := range paths {
		src, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, src, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			lit, is := n.(*ast.BasicLit)
			if !is || lit.Kind != token.STRING {
				return true
			}
			text, err := strconv.Unquote(lit.Value)
			raw := lit.Value[0] == '`' && !strings.HasPrefix(text, `json:`)
			if err == nil && (raw || sqlBegin.MatchString(text)) {
				list = append(list, text)
			}
			return true
		})
	}
	return list
}
