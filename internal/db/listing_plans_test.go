package db_test

import (
	"context"
	dbsql "database/sql"
	"database/sql/driver"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/jmoiron/sqlx"
	"modernc.org/sqlite"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db"
	"github.com/ckptsidecar/ckptsidecar/internal/expect"
	"github.com/ckptsidecar/ckptsidecar/internal/survey"
)

// asked records the queries that a store makes on its reading connections.
type asked struct {
	driver.Connector
	mu      sync.Mutex
	during  string              // the running listing
	queries map[string]question // by text
}

type question struct {
	listing string
	args    []driver.NamedValue
}

func (a *asked) Connect(ctx context.Context) (driver.Conn, error) {
	conn, err := a.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return &askedConn{conn.(askable), a}, nil
}

type askable interface {
	driver.Conn
	driver.ConnBeginTx
	driver.ConnPrepareContext
	driver.ExecerContext
	driver.QueryerContext
}

type askedConn struct {
	askable
	all *asked
}

func (c *askedConn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	c.all.mu.Lock()
	if _, known := c.all.queries[query]; !known {
		c.all.queries[query] = question{c.all.during, slices.Clone(args)}
	}
	c.all.mu.Unlock()
	return c.askable.QueryContext(ctx, query, args)
}

// listings are the calls that list, with every filter that they have.
func listings(t *testing.T, s *db.Store) map[string]func(context.Context) error {
	run := ckpt.RunRef{Agent: "a1", Run: "r1"}
	yes, from := true, ckpt.At(newClock().Now())
	all := map[string]func(context.Context) error{
		"agents":        func(ctx context.Context) error { _, err := s.Agents(ctx, ann, ckpt.AgentFilter{}); return err },
		"agents of all": func(ctx context.Context) error { _, err := s.Agents(ctx, everybody, ckpt.AgentFilter{}); return err },
		"steps":         func(ctx context.Context) error { _, err := s.Steps(ctx, ann, run, ckpt.ListFilter{}); return err },
		"steps by status": func(ctx context.Context) error {
			_, err := s.Steps(ctx, ann, run, ckpt.ListFilter{Status: "failed"})
			return err
		},
		"operations": func(ctx context.Context) error { _, err := s.Operations(ctx, ann, run, ckpt.ListFilter{}); return err },
		"operations open": func(ctx context.Context) error {
			_, err := s.Operations(ctx, ann, run, ckpt.ListFilter{Status: "open"})
			return err
		},
		"events":        func(ctx context.Context) error { _, err := s.Events(ctx, ann, run, 0, 50); return err },
		"events of all": func(ctx context.Context) error { _, err := s.EventsOf(ctx, ann, 0, 50); return err },
		"prompts":       func(ctx context.Context) error { _, err := s.Prompts(ctx, ann, ckpt.PromptFilter{}); return err },
		"open prompts": func(ctx context.Context) error {
			_, err := s.Prompts(ctx, ann, ckpt.PromptFilter{Open: true})
			return err
		},
		"prompts of all": func(ctx context.Context) error {
			_, err := s.Prompts(ctx, everybody, ckpt.PromptFilter{Open: true})
			return err
		},
		"drift": func(ctx context.Context) error {
			_, err := s.Drift(ctx, ann, ckpt.DriftFilter{Agent: "a1", Run: "r1", Line: true})
			return err
		},
		"drift, closed": func(ctx context.Context) error {
			_, err := s.Drift(ctx, ann, ckpt.DriftFilter{Agent: "a1", Run: "r1", All: true})
			return err
		},
		"findings": func(ctx context.Context) error { _, err := s.Findings(ctx, ann, survey.FindingsQuery{}); return err },
		"findings of all": func(ctx context.Context) error {
			_, err := s.Findings(ctx, everybody, survey.FindingsQuery{})
			return err
		},
		"audit log":        func(ctx context.Context) error { _, err := s.Audit(ctx, ann, ckpt.AuditFilter{}); return err },
		"audit log of all": func(ctx context.Context) error { _, err := s.Audit(ctx, everybody, ckpt.AuditFilter{}); return err },
		"tokens":           func(ctx context.Context) error { _, err := s.Tokens(ctx, ann, ckpt.TokenFilter{}); return err },
		"overview":         func(ctx context.Context) error { _, _, err := s.Overview(ctx, ann, survey.OverviewQuery{}); return err },
		"overview of all": func(ctx context.Context) error {
			_, _, err := s.Overview(ctx, everybody, survey.OverviewQuery{})
			return err
		},
		"recorder": func(ctx context.Context) error {
			_, err := s.Recorder(ctx, ann, run, survey.RecorderQuery{})
			return err
		},
	}
	for name, f := range map[string]survey.TranscriptQuery{
		"newest": {}, "from": {From: from}, "failed": {Failed: true}, "failed, from": {Failed: true, From: from},
	} {
		all["transcript: "+name] = func(ctx context.Context) error { _, err := s.Transcript(ctx, ann, run, f); return err }
	}
	for name, f := range filters() {
		for _, f.Sort = range []ckpt.RunSort{"", ckpt.SortUpdated, ckpt.SortStarted} {
			f := f
			all["runs: "+name+" "+string(f.Sort)] = func(ctx context.Context) error { _, err := s.Runs(ctx, ann, f); return err }
			if f.Agent == "" {
				all["runs of all: "+name+" "+string(f.Sort)] = func(ctx context.Context) error { _, err := s.Runs(ctx, everybody, f); return err }
			}
		}
	}
	for name, f := range map[string]ckpt.CheckpointFilter{
		"all": {}, "run": {Run: "r1"}, "kind": {Kind: ckpt.KindRecovery}, "kind of a run": {Run: "r1", Kind: ckpt.KindRoutine},
		"suspect": {Suspect: &yes}, "label": {Labels: ckpt.Labels{"k": "v"}}, "label of a run": {Run: "r1", Labels: ckpt.Labels{"k": "v"}},
	} {
		f.Agent = "a1"
		all["checkpoints: "+name] = func(ctx context.Context) error { _, err := s.Checkpoints(ctx, ann, f); return err }
		all["latest: "+name] = func(ctx context.Context) error {
			_, err := s.Latest(ctx, ann, f, false)
			if ckpt.CodeOf(err) == ckpt.CodeNotFound {
				return nil
			}
			return err
		}
	}
	return all
}

var everybody = ckpt.Scope{Caller: ckpt.Caller{Owner: "uid:0", PID: 10, Admin: true}, Target: ckpt.AllOwners}

// TestListingsUseIndexes calls every listing with every filter, and checks the plan of each query. No listing sorts
// its rows in a temporary B-tree, and none reads a whole table that grows.
func TestListingsUseIndexes(t *testing.T) {
	t.Parallel()
	s, _ := open(t)
	manyRuns(t, s, 60)
	run := ckpt.RunRequest{Agent: "a1", Run: "r1"}
	if _, _, err := s.StartRun(t.Context(), ann, run); err != nil {
		t.Fatal(err)
	}
	r := request("a1", ckpt.KindRoutine, `1`)
	r.Run = "r1"
	if _, err := s.Save(t.Context(), ann, r); err != nil {
		t.Fatal(err)
	}
	base, err := sqlite.NewConnector("file:" + pathOf(s) + "?mode=ro")
	if err != nil {
		t.Fatal(err)
	}
	rec := &asked{Connector: base, queries: map[string]question{}}
	s.RO = sqlx.NewDb(dbsql.OpenDB(rec), "sqlite3")
	t.Cleanup(func() { _ = s.RO.Close() })
	for name, call := range listings(t, s) {
		rec.during = name
		if err := call(t.Context()); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	t.Logf("%d queries", len(rec.queries))
	plain := sqlx.NewDb(dbsql.OpenDB(base), "sqlite3")
	defer plain.Close()
	for text, q := range rec.queries {
		judgePlan(t, plain, text, q)
	}
}

// permission allows a step in the queries of one listing that contain a text, with a reason.
type permission struct{ listing, step, text, why string }

var permitted = []permission{
	{"runs", "USE TEMP B-TREE", "SELECT r.id, a.name AS agent", "the runs that fit are sorted by their last change, which each save changes: an index would cost every save"},
	{"runs", "USE TEMP B-TREE", "SELECT count(*) FROM (SELECT DISTINCT run_id FROM", "it counts up to a limit, to choose the rarest filter"},
	{"overview", "USE TEMP B-TREE FOR GROUP BY", "count(*)", "it counts in three or four groups"},
	{"overview", "USE TEMP B-TREE FOR ORDER BY", "", "a page of runs that are chosen already"},
	{"overview", "SCAN", "INDEXED BY findings_open", "the index holds what is open alone"},
	{"overview", "SCAN findings USING INDEX findings_secrets", "", "the index holds these alone"},
	{"overview", "SCAN x USING INDEX operations_uncertain", "", "the index holds what is uncertain alone"},
	{"overview", "SCAN x USING INDEX prompts_waiting", "", "the index holds what waits alone"},
	{"overview", "SCAN runs USING COVERING INDEX runs_by_status", "", "it counts all runs by the index"},
	{"overview", "SCAN agents", "", "it counts the agents"},
	{"agents", "USE TEMP B-TREE", "", "a page of agents that are chosen already"},
	{"checkpoints", "USE TEMP B-TREE", "", "a page of checkpoints that an index has chosen, and the trees of one"},
	{"latest", "USE TEMP B-TREE", "", "one checkpoint of each run and kind, by an index, and the trees of one"},
	{"steps", "USE TEMP B-TREE", "id IN (SELECT id FROM steps", "the ids of a run's steps, out of an index, and then a page"},
	{"operations", "USE TEMP B-TREE", "id IN (SELECT id FROM operations", "the ids of a run's operations, out of an index, and then a page"},
	{"events", "USE TEMP B-TREE", "AS before", "a page of events that an index has given in order"},
	{"audit log", "USE TEMP B-TREE", "", "a page of rows, and the changes of one"},
	{"audit log", "SCAN acts", "(SELECT n FROM acts WHERE at < ?9 ORDER BY n DESC LIMIT 1)", "it walks back from the newest row to the time that was asked for"},
	{"drift", "USE TEMP B-TREE", "", "the newest steps and checkpoints of a run, and its open findings"},
	{"recorder", "USE TEMP B-TREE", "", "what lies in the window that is looked at"},
	{"transcript", "USE TEMP B-TREE", "cause", "some of the newest failures, by cause"},
	{"tokens", "", "", "an owner has a few"},
}

func judgePlan(t *testing.T, q *sqlx.DB, text string, asked question) {
	t.Helper()
	args := make([]any, len(asked.args))
	for i, a := range asked.args {
		args[i] = a.Value
	}
	plan := expect.Plan(t, q, text, args...)
	text = strings.ReplaceAll(strings.Join(strings.Fields(text), " "), "( ", "(")
	for _, step := range plan {
		if !sorts(step) && !scansAll(step, plan) {
			continue
		}
		if !slices.ContainsFunc(permitted, func(p permission) bool {
			return strings.HasPrefix(asked.listing, p.listing) && strings.HasPrefix(step, p.step) && strings.Contains(text, p.text)
		}) {
			t.Errorf("%s: %s, in\n%s\n%s", asked.listing, step, strings.Join(plan, "\n"), text)
		}
	}
}

func sorts(step string) bool { return strings.Contains(step, "TEMP B-TREE") }

// scansAll reports whether a step reads a whole table, other than one that the query itself has built.
func scansAll(step string, plan []string) bool {
	words := strings.Fields(step)
	if words[0] != "SCAN" || slices.Contains(words, "CONSTANT") || slices.Contains(words, "VIRTUAL") || strings.HasPrefix(words[1], "(") {
		return false
	}
	return !slices.ContainsFunc(plan, func(other string) bool {
		return other == "CO-ROUTINE "+words[1] || strings.HasPrefix(other, "MATERIALIZE "+words[1])
	})
}
