package ckptsidecar_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/ckptsidecar/ckptsidecar"

// root is the name of the root package in the tables below.
const root = "."

// arrows is the plan of the packages: which packages a package may import. A package that is not listed may not
// exist, and a listed one need not exist yet. To add an arrow, change this table, docs/ARCHITECTURE.md and the
// package's doc.go in the same commit.
var arrows = map[string][]string{
	// Level 0: words, the operating system, files.
	root:                    {},
	"internal/ipc/endpoint": {"internal/osfile"},
	"internal/delta":        {},
	"internal/osfile":       {},
	"packaging":             {},
	"internal/testenv":      {},     // tests only: nothing else may import it
	"internal/expect":       {root}, // the same
	"internal/cli/term":     {root},
	"internal/cli/clitest":  {}, // tests only: nothing else may import it

	// Mistakes that the tests must find. Only tests import it.
	"internal/faulttest/mutants": {},

	// Also level 0: what JSON texts contain, and whether requests are valid in themselves.
	"internal/jsontext":              {root, "internal/delta"},
	"internal/periodic":              {},
	"internal/fleet":                 {},
	"internal/fleet/lease":           {},
	"internal/drift/normalise":       {},
	"internal/drift/observer":        {root},
	"internal/liveness":              {},
	"internal/outbox":                {},
	"internal/drift/phrase":          {},
	"internal/drift/meter":           {},
	"internal/drift/meter/metertest": {}, // tests only: nothing else may import it
	"internal/drift/rule":            {root, "internal/drift/observer", "internal/drift/meter", "internal/drift/phrase"},
	"internal/drift/schema":          {root, "internal/jsontext", "internal/drift/meter", "internal/drift/phrase"},
	"internal/wellformed":            {root, "internal/jsontext"},
	"internal/tree":                  {root},
	"internal/survey":                {root},
	"internal/otlp/observed":         {root},
	"internal/files":                 {root, "internal/osfile", "internal/tree"},
	"internal/files/rewind":          {root, "internal/osfile", "internal/tree"},

	// Level 1: one package for each technology or question. They do not know each other.
	"internal/db/sqlite": {root, "internal/osfile"},
	"internal/db/blob":   {root, "internal/db/sqlite", "internal/delta", "internal/jsontext", "internal/secrets"},
	"internal/db/usage":  {root, "internal/db/sqlite", "internal/drift/phrase"},
	"internal/db/ledger": {
		root, "internal/retention", "internal/resume", "internal/liveness", "internal/drift/observer", "internal/db/sqlite",
		"internal/db/blob", "internal/db/usage", "internal/delta", "internal/osfile", "internal/jsontext", "internal/wellformed",
		"internal/secrets", "internal/survey",
	},
	"internal/db/audit": {
		root, "internal/db/sqlite", "internal/db/blob", "internal/db/files", "internal/db/ledger", "internal/tree",
	},
	"internal/db/files": {
		root, "internal/db/sqlite", "internal/db/blob", "internal/db/usage", "internal/db/ledger", "internal/db/driftlog",
		"internal/delta", "internal/secrets", "internal/tree",
	},
	"internal/db/driftlog": {
		root, "internal/drift/observer", "internal/db/sqlite", "internal/db/blob", "internal/db/ledger", "internal/jsontext",
		"internal/secrets", "internal/survey", "internal/wellformed",
	},
	"internal/db/spans": {
		root, "internal/db/sqlite", "internal/db/ledger", "internal/db/driftlog", "internal/drift/observer", "internal/jsontext",
		"internal/otlp/observed",
	},
	"internal/db/saves": {
		root, "internal/db/sqlite", "internal/db/blob", "internal/db/ledger", "internal/retention", "internal/db/driftlog",
		"internal/secrets", "internal/wellformed",
	},
	"internal/db/langgraph": {
		root, "internal/db/sqlite", "internal/db/blob", "internal/db/usage", "internal/db/ledger", "internal/db/saves",
		"internal/jsontext", "internal/wellformed",
	},
	"internal/db/copy": {
		root, "internal/delta", "internal/liveness", "internal/db/sqlite", "internal/db/audit", "internal/db/blob", "internal/db/files",
		"internal/db/ledger", "internal/db/driftlog", "internal/jsontext", "internal/tree", "internal/wellformed",
	},
	"internal/db/journal":  {root, "internal/db/blob", "internal/db/copy", "internal/db/ledger", "internal/fleet", "internal/retention"},
	"internal/db/policies": {root, "internal/db/ledger", "internal/db/sqlite", "internal/wellformed"},
	"internal/db/surveys":  {root, "internal/db/ledger", "internal/retention", "internal/survey"},
	"internal/db": {
		root, "internal/retention", "internal/resume", "internal/liveness", "internal/outbox", "internal/drift/observer", "internal/db/sqlite",
		"internal/db/blob", "internal/db/usage", "internal/db/ledger", "internal/db/audit", "internal/db/driftlog",
		"internal/db/files", "internal/db/policies", "internal/db/saves", "internal/db/spans", "internal/db/surveys",
		"internal/db/copy", "internal/db/langgraph", "internal/drift/phrase", "internal/survey", "internal/wellformed",
	},
	"internal/retention": {root, "internal/periodic"},
	"internal/drift": {
		root, "internal/drift/observer", "internal/jsontext", "internal/drift/meter", "internal/drift/normalise",
		"internal/drift/phrase", "internal/drift/rule",
		"internal/drift/schema",
	},
	"internal/resume":       {root},
	"internal/notify":       {root, "internal/outbox", "internal/jsontext"},
	"internal/monitor":      {root, "internal/liveness", "internal/periodic"},
	"internal/secrets":      {root, "internal/jsontext"},
	"internal/foreign":      {root, "internal/jsontext", "internal/wellformed"},
	"internal/otlp":         {root, "internal/jsontext", "internal/otlp/observed"},
	"internal/fleet/pg":     {"internal/fleet"},
	"internal/fleet/seal":   {"internal/fleet"},
	"internal/fleet/pgtest": {"internal/testenv"}, // tests only: nothing else may import it
	"internal/ipc":          {root},
	"internal/ipc/receiver": {root, "internal/ipc/endpoint", "internal/otlp", "internal/otlp/observed"},
	"internal/ipc/server":   {root, "internal/ipc", "internal/ipc/endpoint", "internal/delta", "internal/fleet", "internal/jsontext", "internal/survey", "internal/wellformed"},
	"internal/ipc/client": {
		root, "internal/ipc", "internal/ipc/endpoint", "internal/delta", "internal/fleet", "internal/jsontext", "internal/periodic",
		"internal/survey", "internal/wellformed",
	},

	// Level 2: the packages are connected, and agents are served.
	"internal/fleet/host": {
		root, "internal/db", "internal/db/audit", "internal/db/journal", "internal/fleet", "internal/fleet/lease", "internal/fleet/pg",
		"internal/fleet/seal", "internal/ipc/server", "internal/osfile", "internal/periodic", "internal/retention", "internal/survey",
	},
	"internal/daemon": {
		root, "internal/drift/observer", "internal/ipc/endpoint", "packaging", "internal/delta", "internal/db", "internal/db/audit",
		"internal/retention", "internal/drift", "internal/resume", "internal/monitor", "internal/notify", "internal/secrets", "internal/ipc", "internal/ipc/server",
		"internal/fleet", "internal/fleet/host", "internal/ipc/receiver", "internal/osfile", "internal/otlp/observed", "internal/periodic", "internal/survey",
		"internal/wellformed",
		"internal/jsontext", // it knows where in a table of the settings a mistake is
	},
	"client":               {root, "internal/ipc/client", "internal/jsontext", "internal/osfile"},
	"internal/adaptertest": {"client", "internal/testenv"}, // tests only: nothing else may import it
	"internal/mcpserver":   {root, "internal/ipc/client", "internal/jsontext", "internal/wellformed"},
	"internal/hook":        {root, "internal/ipc/client", "internal/jsontext"},
	"internal/cli/program": {"internal/ipc/client"},

	"internal/console/draw": {root, "internal/survey"},
	"internal/console":      {root, "internal/console/draw", "internal/fleet", "internal/ipc/client", "internal/jsontext", "internal/survey", "internal/wellformed"},

	// Level 3: people.
	"internal/cli": {root, "internal/cli/program", "internal/cli/term", "internal/daemon", "internal/ipc/client", "internal/survey"},
	"internal/cli/measure": {
		root, "internal/cli", "internal/cli/program", "internal/cli/term", "internal/daemon", "internal/ipc/client", "internal/osfile", "internal/periodic",
	},
	"internal/cli/view": {root, "internal/cli", "internal/cli/term"},
	"internal/cli/supervise": {
		root, "client", "internal/cli", "internal/cli/term", "internal/cli/view", "internal/daemon", "internal/fleet/lease", "internal/ipc/client", "internal/osfile",
	},
	"internal/cli/driftcmd": {
		root, "internal/drift/observer", "internal/cli", "internal/cli/term", "internal/cli/view", "internal/drift",
		"internal/ipc/client", "internal/jsontext", "internal/survey", "internal/wellformed",
	},
	"internal/cli/filescmd": {
		root, "internal/cli", "internal/cli/term", "internal/files", "internal/files/rewind", "internal/hook", "internal/ipc/client",
		"internal/osfile", "internal/tree",
	},
	"internal/cli/democmd": {root, "internal/cli", "internal/cli/program", "internal/cli/term", "internal/cli/view", "internal/ipc/client", "internal/periodic"},
	"internal/cli/hookcmd": {
		root, "internal/cli", "internal/cli/filescmd", "internal/cli/term", "internal/cli/view", "internal/hook", "internal/ipc/client", "internal/osfile",
	},
	"internal/cli/policycmd": {
		root, "internal/cli", "internal/cli/term", "internal/daemon", "internal/ipc/client", "internal/jsontext", "internal/survey", "internal/wellformed",
	},
	"internal/cli/fleetcmd": {
		root, "internal/cli", "internal/cli/term", "internal/cli/view", "internal/daemon", "internal/fleet", "internal/fleet/host", "internal/ipc/client",
		"internal/periodic", "internal/survey",
	},
	"internal/cli/transfercmd": {root, "internal/cli", "internal/cli/term", "internal/foreign", "internal/osfile"},
	"internal/cli/consolecmd":  {"internal/cli", "internal/cli/doctor", "internal/cli/term", "internal/console"},
	"internal/cli/manual":      {root, "internal/cli", "internal/cli/term", "internal/daemon"},
	"internal/cli/service":     {"internal/cli", "internal/cli/term", "internal/daemon", "internal/osfile", "packaging"},
	"internal/cli/doctor": {
		root, "client", "internal/cli", "internal/cli/service", "internal/cli/term", "internal/cli/view", "internal/daemon", "internal/fleet",
		"internal/hook", "internal/ipc/client", "internal/osfile",
	},
	"examples/go": {"client"},
	"cmd/ckptsidecar": {
		root, "internal/cli", "internal/cli/consolecmd", "internal/cli/democmd", "internal/cli/doctor", "internal/cli/driftcmd",
		"internal/cli/filescmd", "internal/cli/fleetcmd", "internal/cli/hookcmd", "internal/cli/manual", "internal/cli/measure", "internal/cli/policycmd",
		"internal/cli/program", "internal/cli/transfercmd",
		"internal/cli/service", "internal/cli/supervise", "internal/cli/term", "internal/cli/view", "internal/osfile", "internal/jsontext",
		"internal/wellformed", "internal/daemon", "internal/fleet", "internal/ipc/client", "internal/mcpserver", "internal/hook", "internal/survey", "client",
	},
}

// homes maps each technology to the only package that may import it, together with the packages below it.
var homes = map[string]string{
	"modernc.org/sqlite":              "internal/db/sqlite",
	"modernc.org/libc":                "internal/db/sqlite",
	"github.com/jmoiron/sqlx":         "internal/db",
	"github.com/Microsoft/go-winio":   "internal/ipc/endpoint",
	"github.com/coreos/go-systemd":    "internal/daemon",
	"github.com/kardianos/service":    "internal/cli/service",
	"github.com/expr-lang/expr":       "internal/drift/rule",
	"github.com/google/jsonschema-go": "internal/drift/schema",
	"github.com/modelcontextprotocol": "internal/mcpserver",
	"connectrpc.com/connect":          "internal/ipc/receiver",
	"go.opentelemetry.io/proto":       "internal/otlp",
	"google.golang.org/protobuf":      "internal/otlp",
	"github.com/jackc/pgx":            "internal/fleet",
	"mvdan.cc/sh":                     "internal/hook",
}

// source is one Go file that is not a test, for any platform.
type source struct {
	pkg, path string
	imports   []string
}

func TestArrowsBetweenPackages(t *testing.T) {
	for _, s := range sources(t) {
		allowed, known := arrows[s.pkg]
		if !known {
			t.Errorf("%s: the package %s is not in the table of arrows", s.path, s.pkg)
			continue
		}
		for _, path := range s.imports {
			if to, is := ours(path); is && !slices.Contains(allowed, to) {
				t.Errorf("%s: %s may not import %s; it may import %q", s.path, s.pkg, to, allowed)
			}
		}
	}
}

func TestArrowsPointToPackagesAndDown(t *testing.T) {
	for from, list := range arrows {
		for _, to := range list {
			if _, known := arrows[to]; !known {
				t.Errorf("%s may import %s, which is no package", from, to)
			}
		}
		if path := wayBack(from, from, nil); path != nil {
			t.Errorf("the arrows go in a circle: %s", strings.Join(path, " -> "))
		}
	}
}

// wayBack follows the arrows from a package until it finds the package to search for.
func wayBack(from, search string, path []string) []string {
	path = append(path, from)
	for _, to := range arrows[from] {
		if to == search {
			return append(path, to)
		}
		if found := wayBack(to, search, path); found != nil {
			return found
		}
	}
	return nil
}

func TestRootImportsTheStandardLibraryOnly(t *testing.T) {
	for _, s := range sources(t) {
		for _, path := range s.imports {
			if s.pkg == root && !isStandard(path) {
				t.Errorf("%s imports %s: the root package takes nothing but the standard library", s.path, path)
			}
		}
	}
}

func TestTechnologiesStayAtHome(t *testing.T) {
	for _, s := range sources(t) {
		for _, path := range s.imports {
			for technology, home := range homes {
				if within(path, technology) && !within(s.pkg, home) {
					t.Errorf("%s imports %s, which only %s may name", s.path, path, home)
				}
			}
		}
	}
}

func TestNoCgo(t *testing.T) {
	for _, s := range sources(t) {
		if slices.Contains(s.imports, "C") {
			t.Errorf("%s uses cgo: the program is one static binary", s.path)
		}
	}
}

func TestPackagesSayWhatTheyMayImport(t *testing.T) {
	docs := map[string]string{}
	err := walk(func(path string) error {
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments|parser.PackageClauseOnly)
		if err == nil && file.Doc != nil {
			docs[packageOf(path)] += file.Doc.Text()
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range sources(t) {
		if !strings.Contains(docs[s.pkg], "may import") {
			t.Errorf("the package comment of %s does not say what it may import", s.pkg)
			docs[s.pkg] = "may import" // reported only once
		}
	}
}

// TestTestsHaveAHomeOfTheirOwn: every package whose tests start programs or talk to a daemon uses testenv, so that
// none of them reaches the caller's own.
func TestTestsHaveAHomeOfTheirOwn(t *testing.T) {
	reaching := []string{
		"os/exec", module + "/client", module + "/internal/ipc/client", module + "/internal/ipc/endpoint", module + "/internal/daemon",
	}
	exempt := map[string]string{
		root:                    "its tests ask only the go command",
		"internal/drift/schema": "its tests ask only the go command",
		"e2e":                   "its tests work inside machines that they boot",

		"internal/faulttest/mutants": "it runs tests of other packages, which have homes of their own",
	}
	needs, has := map[string]string{}, map[string]bool{}
	err := walkFiles(true, func(path string) error {
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		for _, imported := range imports(file) {
			if slices.Contains(reaching, imported) {
				needs[packageOf(path)] = path
			}
			if imported == module+"/internal/testenv" || packageOf(path) == "internal/testenv" {
				has[packageOf(path)] = true
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for dir, path := range needs {
		if !has[dir] && exempt[dir] == "" {
			t.Errorf("%s reaches other programs, but no TestMain in %s calls testenv.Main", path, dir)
		}
	}
}

// sources reads the imports of every Go file of the module that is not a test.
func sources(t *testing.T) []source {
	t.Helper()
	var list []source
	err := walk(func(path string) error {
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		list = append(list, source{packageOf(path), path, imports(file)})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(list) < 10 {
		t.Fatalf("only %d files were found: %v", len(list), list)
	}
	return list
}

func imports(file *ast.File) []string {
	paths := map[string]bool{}
	for _, spec := range file.Imports {
		if path, err := strconv.Unquote(spec.Path.Value); err == nil {
			paths[path] = true
		}
	}
	return slices.Sorted(maps.Keys(paths))
}

// walk visits the Go files of the module that are not tests, with any build tags. A folder with its own go.mod is
// another module.
func walk(visit func(path string) error) error { return walkFiles(false, visit) }

// walkFiles is walk, but visits the tests instead if tests is true.
func walkFiles(tests bool, visit func(path string) error) error {
	return filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		switch name := d.Name(); {
		case err != nil:
			return err
		case d.IsDir() && path != root && (strings.HasPrefix(name, ".") || name == "testdata" || name == "node_modules" || name == "dist"):
			return filepath.SkipDir
		case d.IsDir() && path != root && isModule(path):
			return filepath.SkipDir
		case d.IsDir() || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") != tests:
			return nil
		}
		return visit(path)
	})
}

func isModule(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, "go.mod"))
	return err == nil
}

func packageOf(path string) string { return filepath.ToSlash(filepath.Dir(path)) }

// ours returns the package that an import path names, if it is one of ours.
func ours(path string) (string, bool) {
	if path == module {
		return root, true
	}
	return strings.CutPrefix(path, module+"/")
}

func within(path, module string) bool {
	return path == module || strings.HasPrefix(path, module+"/")
}

// isStandard reports whether an import is from the standard library: all others have a domain in their first part.
func isStandard(path string) bool {
	first, _, _ := strings.Cut(path, "/")
	return !strings.Contains(first, ".") && path != "C"
}

// tables says which package may write which table. A package that is not listed may not name any table in a
// statement that writes.
var tables = map[string][]string{
	"internal/db/blob":  {"segments"},
	"internal/db/usage": {"meta"},
	"internal/db/ledger": {
		"act_texts", "acts", "agents", "audit_archives", "audit_links", "checkpoints", "deliveries", "event_batches", "idempotency", "ids", "meta", "notices", "owner_changes", "places", "run_terms", "runs", "spans", "trees",
	},
	"internal/db/policies": {"policies"},
	"internal/db/driftlog": {"checkpoint_trees", "checkpoints", "findings", "runs"},
	"internal/db/saves":    {"checkpoints", "runs"},
	"internal/db/files": {
		"checkpoint_trees", "content_leases", "content_secrets", "content_uses", "contents", "tree_files", "trees",
	},
	"internal/db/spans":     {"observed", "runs", "spans", "steps"},
	"internal/db/langgraph": {"graph_checkpoints", "graph_threads", "graph_writes"},
	"internal/db/copy": {
		"acts", "agents", "checkpoint_trees", "checkpoints", "content_uses", "contents", "meta", "observed", "operations", "run_segments", "runs", "segments", "tree_files", "trees",
	},
	"internal/db": {
		"agents", "checkpoint_trees", "checkpoints", "content_leases", "content_secrets", "content_uses", "contents", "deliveries", "event_batches", "events", "findings", "idempotency", "ids", "meta", "operations", "prompts", "runs", "scrub_owed", "segments", "steps", "tokens", "tree_files", "trees",
	},
}

var (
	schemaTable = regexp.MustCompile(`(?m)^CREATE TABLE (?:IF NOT EXISTS )?"?(\w+)`)
	writesTable = regexp.MustCompile(`\b(?:INSERT (?:OR [A-Z]+ )?INTO|UPDATE|DELETE FROM) ([a-z_]+)\b`)
)

func TestTablesHaveWriters(t *testing.T) {
	schema, err := os.ReadFile("schema.sql")
	if err != nil {
		t.Fatal(err)
	}
	known := map[string]bool{}
	for _, match := range schemaTable.FindAllStringSubmatch(string(schema), -1) {
		known[match[1]] = true
	}
	if len(known) < 10 {
		t.Fatalf("schema.sql has only %d tables: %v", len(known), known)
	}
	used := map[string]map[string]bool{}
	for _, s := range sources(t) {
		text, err := os.ReadFile(s.path)
		if err != nil {
			t.Fatal(err)
		}
		for _, match := range writesTable.FindAllStringSubmatch(string(text), -1) {
			if !known[match[1]] {
				continue
			}
			if !slices.Contains(tables[s.pkg], match[1]) {
				t.Errorf("%s writes the table %s; %s may write %q", s.path, match[1], s.pkg, tables[s.pkg])
			}
			if used[s.pkg] == nil {
				used[s.pkg] = map[string]bool{}
			}
			used[s.pkg][match[1]] = true
		}
	}
	for name, list := range tables {
		for _, table := range list {
			if !used[name][table] {
				t.Errorf("%s may write the table %s and does not: take it out of the list", name, table)
			}
		}
	}
}

// bareLimit is a parameter that is alone after LIMIT. SQLite reads its value when it plans, and so prepares a kept
// statement again each time. That took up to 40 % of a save into a run that was not in memory. SQLite does not read
// the value in LIMIT 0 + ?.
var bareLimit = regexp.MustCompile(`\bLIMIT \?`)

func TestTechnologiesKeepTheirStatements(t *testing.T) {
	for _, s := range sources(t) {
		text, err := os.ReadFile(s.path)
		if err != nil {
			t.Fatal(err)
		}
		if bareLimit.Match(text) {
			t.Errorf("%s: write LIMIT 0 + ?, or the statement is prepared anew at each execution", s.path)
		}
	}
}
