package journal_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

var isAction = regexp.MustCompile(`^[a-z]+(_[a-z]+)*$`)

// sourceActions returns the actions that the store writes into its audit log: each text that is passed to a
// parameter or a field with the name action.
func sourceActions(t *testing.T) []string {
	t.Helper()
	var files []*ast.File
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		files = append(files, f)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	places := map[string]int{} // index of that parameter, by the name of the function
	for _, f := range files {
		for _, d := range f.Decls {
			if fn, is := d.(*ast.FuncDecl); is {
				if at := actionOf(fn.Type); at >= 0 {
					places[fn.Name.Name] = at
				}
			}
		}
	}
	found := map[string]bool{}
	add := func(e ast.Expr) {
		if lit, is := e.(*ast.BasicLit); is && lit.Kind == token.STRING {
			if text, err := strconv.Unquote(lit.Value); err == nil && isAction.MatchString(text) {
				found[text] = true
			}
		}
	}
	for _, f := range files {
		ast.Inspect(f, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.CallExpr:
				name := ""
				switch fn := n.Fun.(type) {
				case *ast.Ident:
					name = fn.Name
				case *ast.SelectorExpr:
					name = fn.Sel.Name
				}
				if at, is := places[name]; is && at < len(n.Args) && !strings.HasPrefix(name, "AuditRead") {
					add(n.Args[at])
				}
			case *ast.KeyValueExpr:
				if key, is := n.Key.(*ast.Ident); is && strings.EqualFold(key.Name, "action") {
					add(n.Value)
				}
			case *ast.AssignStmt:
				for i, left := range n.Lhs {
					if name, is := left.(*ast.Ident); is && name.Name == "action" && i < len(n.Rhs) {
						add(n.Rhs[i])
					}
				}
			}
			return true
		})
	}
	var list []string
	for action := range found {
		list = append(list, action)
	}
	slices.Sort(list)
	return list
}

// actionOf returns the index of the parameter with the name action, or -1 if there is none.
func actionOf(fn *ast.FuncType) int {
	at := 0
	for _, field := range fn.Params.List {
		for _, name := range field.Names {
			if name.Name == "action" {
				return at
			}
			at++
		}
	}
	return -1
}

// These are reasons why an action needs no case in TestCopyOfEachAction.
const (
	inHistories = "the histories of TestCopy have it"
	readWhole   = "the run is read as a whole, as with any action that nobody has thought of"
	noRun       = "it changes nothing of a run"
)

var caseElsewhere = map[string]string{
	"append_events": inHistories, "begin_operation": inHistories, "begin_step": inHistories, "change": inHistories,
	"chown": inHistories, "delete": inHistories,
	"end_operation": inHistories, "finish_step": inHistories, "restore": inHistories, "resume": inHistories, "start_run": inHistories,
	"attach_files": readWhole, "calibrate": readWhole, "delete_runs": readWhole, "drop_run": readWhole,
	"import": readWhole, "interrupt_run": readWhole,
	"let_go_of_files": readWhole, "observe_run": readWhole, "observe_spans": readWhole,
	"prune_threads": readWhole, "resolve_operation": readWhole,
	"archive_audit": noRun, "drop_spans": noRun, "missing_contents": noRun, "notify_test": noRun,
	"put_contents": noRun, "put_token": noRun, "put_tree": noRun,
	"read_operations": noRun, "read_prune": noRun, "read_steps": noRun, "restore_backup": noRun, "revoke_token": noRun, "start": noRun, "verify": noRun,
}

// casesOfActions returns the actions that TestCopyOfEachAction makes.
func casesOfActions(t *testing.T) (list []string) {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), "actions_test.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(f, func(n ast.Node) bool {
		if c, is := n.(*ast.CompositeLit); is && len(c.Elts) == 2 {
			name, text := c.Elts[0].(*ast.BasicLit)
			if _, does := c.Elts[1].(*ast.FuncLit); text && does {
				list = append(list, strings.Trim(name.Value, `"`))
			}
		}
		return true
	})
	return list
}

// TestEveryActionHasACase: each action that the store can write needs a case in TestCopyOfEachAction, or a reason
// why it needs none.
func TestEveryActionHasACase(t *testing.T) {
	actions, cases := sourceActions(t), casesOfActions(t)
	if len(actions) < 50 || len(cases) < 15 {
		t.Fatalf("only %d actions and %d cases were found: %q, %q", len(actions), len(cases), actions, cases)
	}
	for _, action := range actions {
		if !slices.Contains(cases, action) && caseElsewhere[action] == "" {
			t.Errorf("%s has no case in TestCopyOfEachAction: is it shipped as it must be?", action)
		}
	}
	for action := range caseElsewhere {
		if !slices.Contains(actions, action) || slices.Contains(cases, action) {
			t.Errorf("%s needs no reason: nobody writes it, or it has a case", action)
		}
	}
}
