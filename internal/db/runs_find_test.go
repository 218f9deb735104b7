package db_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db"
	"github.com/ckptsidecar/ckptsidecar/internal/db/ledger"
	"github.com/ckptsidecar/ckptsidecar/internal/expect"
)

// manyRuns makes runs of two owners by statements of the writer, a thousand per
// transaction, because calls would take too long. Every tenth of each kind is
// still open, a hundredth has a critical finding, a thousandth has a rare
// label.
func manyRuns(t testing.TB, s *db.Store, n int) {
	t.Helper()
	write := func(query string, args ...any) {
		t.Helper()
		must(t, s.Write("daemon", 0, func(exec func(string, ...any) error) error { return exec(query, args...) }))
	}
	for i := range 4 { // bob has two of six agents
		save(t, s, ann, fmt.Sprint("a", i), ckpt.KindRoutine, `1`)
	}
	save(t, s, bob, "a0", ckpt.KindRoutine, `1`)
	save(t, s, bob, "b", ckpt.KindRoutine, `1`)
	for from := 0; from < n; from += 1000 {
		write(`WITH RECURSIVE c(i) AS (SELECT ?1 UNION ALL SELECT i + 1 FROM c WHERE i + 1 < ?2)
			INSERT INTO runs (agent_id, name, status, started_at, updated_at, ended_at, workflow, goal, labels)
			SELECT 1 + i % 6, 'r' || i,
				CASE WHEN i % 10 = 0 THEN 'interrupted' WHEN i % 10 < 8 THEN 'completed' ELSE 'failed' END,
				strftime('%Y-%m-%dT%H:%M:%fZ', 1767225600 + i * 60 + (i * 7919) % 90, 'unixepoch'),
				strftime('%Y-%m-%dT%H:%M:%fZ', 1767225600 + i * 60 + 100 + (i * 104729) % 5000, 'unixepoch'),
				CASE WHEN i % 10 = 0 THEN NULL ELSE '2026-06-01T00:00:00.000Z' END,
				CASE WHEN i % 500 = 3 THEN 'rare' ELSE 'flow' || (i % 4) END,
				CASE WHEN i % 1000 = 7 THEN 'Repair the flux-capacitor' WHEN i % 3 = 0 THEN 'Deploy the shop, then test it' ELSE 'Write tests for deployment ' || i END,
				json_object('team', 't' || (i % 5), 'ticket', 'n' || i)
			FROM c`, from, min(from+1000, n))
	}
	var ids []int64
	must(t, s.RO.Select(&ids, `SELECT id FROM runs WHERE name LIKE 'r%'`))
	for some := range slices.Chunk(ids, 1000) {
		must(t, s.Submit(&ledger.Op{Owner: "daemon", Do: func(tx *ledger.Tx) error {
			for _, id := range some {
				if err := tx.IndexRun(id); err != nil {
					return err
				}
			}
			return nil
		}}))
	}
	write(`INSERT INTO findings (id, run_id, at, rule, severity, message, dismissed_at)
		SELECT 'f' || id, id, started_at, 'repeat', CASE WHEN id % 100 = 1 THEN 'critical' WHEN id % 7 = 0 THEN 'warn' ELSE 'info' END, 'm',
			CASE WHEN id % 200 = 1 THEN started_at END
		FROM runs WHERE name LIKE 'r%' AND (id % 100 = 1 OR id % 7 = 0 OR id % 11 = 0)`)
}

// filters returns one filter for each part of a filter, common and rare, and
// some combinations.
func filters() map[string]ckpt.RunFilter {
	at := func(text string) ckpt.Time {
		parsed, err := ckpt.ParseTime(text)
		if err != nil {
			panic(err)
		}
		return parsed
	}
	return map[string]ckpt.RunFilter{
		"all": {}, "agent": {Agent: "a1"}, "status": {Status: ckpt.RunFailed}, "open": {Status: ckpt.RunInterrupted}, "running": {Status: ckpt.RunRunning},
		"starting": {Status: ckpt.RunStarting}, "none": {Status: ckpt.RunSuspended},
		"workflow": {Workflow: "flow2"}, "rare workflow": {Workflow: "rare"}, "no workflow": {Workflow: "Rare"},
		"label": {Labels: ckpt.Labels{"team": "t1"}}, "rare label": {Labels: ckpt.Labels{"ticket": "n77"}}, "labels": {Labels: ckpt.Labels{"team": "t2", "ticket": "n77"}},
		"goal": {Goal: "deploy SHOP"}, "rare goal": {Goal: "capacitor"}, "goal by its beginning": {Goal: "deplo*"}, "rare beginning": {Goal: "flu* repair"},
		"no such word": {Goal: "dep"}, "since": {Since: at("2026-01-02T00:00:00Z")}, "between": {Since: at("2026-01-01T10:00:00Z"), Until: at("2026-01-01T11:00:00Z")},
		"until": {Until: at("2026-01-01T06:00:00Z")}, "critical": {Severity: ckpt.SeverityCritical}, "warned": {Severity: ckpt.SeverityWarn}, "any finding": {Severity: ckpt.SeverityInfo},
		"together": {Status: ckpt.RunCompleted, Workflow: "flow1", Labels: ckpt.Labels{"team": "t0"}, Goal: "test*", Severity: ckpt.SeverityInfo},
		"disjoint": {Status: ckpt.RunFailed, Goal: "interrupted"},
	}
}

// fits applies a filter naively to a run as the API shows it.
func fits(f ckpt.RunFilter, r *ckpt.Run, findings map[string]string) bool {
	words := strings.FieldsFunc(strings.ToLower(string(r.Goal)), func(c rune) bool { return strings.ContainsRune(" ,-", c) })
	for _, word := range ckpt.GoalWords(f.Goal) {
		if !slices.ContainsFunc(words, func(w string) bool { return w == word.Text || word.Prefix && strings.HasPrefix(w, word.Text) }) {
			return false
		}
	}
	for key, value := range f.Labels {
		if r.Labels[key] != value {
			return false
		}
	}
	rank := map[string]int{"": 0, "info": 1, "warn": 2, "critical": 3}
	return (f.Agent == "" || r.Agent == f.Agent) && (f.Status == "" || r.Status == f.Status) && (f.Workflow == "" || string(r.Workflow) == f.Workflow) &&
		(f.Since.IsZero() || !r.StartedAt.Before(f.Since.Time)) && (f.Until.IsZero() || r.StartedAt.Before(f.Until.Time)) &&
		rank[findings[r.Agent+"/"+r.Run]] >= rank[string(f.Severity)]
}

// names pages through the results of a filter.
func names(t testing.TB, s *db.Store, sc ckpt.Scope, f ckpt.RunFilter) (list []string) {
	t.Helper()
	for {
		page, err := s.Runs(t.Context(), sc, f)
		must(t, err)
		for _, r := range page.Runs {
			list = append(list, r.Agent+"/"+r.Run)
		}
		if f.Before = string(page.Next); f.Before == "" {
			return list
		}
	}
}

// TestFindingRuns compares each filter, in both orders and with several page
// sizes, with a naive selection from all runs.
func TestFindingRuns(t *testing.T) {
	t.Parallel()
	expect.OneThread(t)
	s, _ := open(t)
	manyRuns(t, s, 3000)
	for _, sc := range []ckpt.Scope{ann, bob} {
		all := []ckpt.Run{}
		f := ckpt.RunFilter{Limit: ckpt.MaxLimit}
		for {
			page, err := s.Runs(t.Context(), sc, f)
			must(t, err)
			all = append(all, page.Runs...)
			if f.Before = string(page.Next); f.Before == "" {
				break
			}
		}
		if len(all) < 1000 {
			t.Fatalf("%s has %d runs", sc.Caller.Owner, len(all))
		}
		findings := map[string]string{}
		rows, err := s.RO.Query(`SELECT agent || '/' || run, severity FROM audit_findings WHERE owner = ? AND dismissed_at IS NULL`, sc.Caller.Owner)
		must(t, err)
		for rows.Next() {
			var run, severity string
			must(t, rows.Scan(&run, &severity))
			findings[run] = severity
		}
		must(t, rows.Err())
		for name, f := range filters() {
			if f.Agent != "" && sc.Caller.Owner != ann.Caller.Owner {
				continue
			}
			for _, f.Sort = range []ckpt.RunSort{"", ckpt.SortUpdated, ckpt.SortStarted} {
				want := []string{}
				ordered := slices.Clone(all)
				slices.SortStableFunc(ordered, func(a, b ckpt.Run) int {
					if f.Sort == ckpt.SortStarted {
						return b.StartedAt.Compare(a.StartedAt.Time)
					}
					return b.UpdatedAt.Compare(a.UpdatedAt.Time)
				})
				for i := range ordered {
					if fits(f, &ordered[i], findings) {
						want = append(want, ordered[i].Agent+"/"+ordered[i].Run)
					}
				}
				for _, f.Limit = range []int{97, ckpt.MaxLimit} {
					if got := names(t, s, sc, f); !sameButForTies(want, got) {
						t.Errorf("%s of %s sorted %q by pages of %d: %d found, %d wanted\n%.300s", name, sc.Caller.Owner, f.Sort, f.Limit, len(got), len(want), cmp.Diff(want, got))
					}
				}
			}
		}
	}
	for name, f := range map[string]ckpt.RunFilter{
		"sort": {Sort: "odd"}, "goal": {Goal: " - "}, "severity": {Severity: "odd"}, "label": {Labels: ckpt.Labels{"": "x"}}, "cursor": {Before: "s2026/1"},
		"cursor of another order": {Before: "2026-01-01T00:00:00.000Z/1", Sort: ckpt.SortStarted},
		"times":                   {Since: ckpt.At(time.Unix(9, 0)), Until: ckpt.At(time.Unix(9, 0))}, "words": {Goal: strings.Repeat("w ", 17)},
	} {
		if _, err := s.Runs(t.Context(), ann, f); ckpt.CodeOf(err) != ckpt.CodeInvalid {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// sameButForTies compares lists in which runs of the same instant may be in any
// order.
func sameButForTies(want, got []string) bool {
	a, b := slices.Clone(want), slices.Clone(got)
	if len(a) > 0 && len(a) == len(b) && (a[0] != b[0] && a[0] != b[min(1, len(b)-1)]) {
		return false
	}
	slices.Sort(a)
	slices.Sort(b)
	return slices.Equal(a, b)
}

// TestPagesOfStartedRunsAreStable: runs are saved to, begin and end while a
// client pages. Each run that exists the whole time comes exactly once.
func TestPagesOfStartedRunsAreStable(t *testing.T) {
	t.Parallel()
	s, clock := open(t)
	r := rand.New(rand.NewPCG(7, 7))
	start := func(name string) {
		clock.add(time.Duration(r.IntN(3)) * time.Millisecond)
		_, _, err := s.StartRun(t.Context(), ann, ckpt.RunRequest{Agent: "a", Run: name, Workflow: "w", Goal: "stable pages", Labels: ckpt.Labels{"k": "v"}})
		must(t, err)
	}
	for i := range 200 {
		start(fmt.Sprint("r", i))
	}
	for _, f := range []ckpt.RunFilter{{}, {Workflow: "w"}, {Goal: "stable"}, {Labels: ckpt.Labels{"k": "v"}}, {Agent: "a"}} {
		f.Sort, f.Limit = ckpt.SortStarted, 9
		seen := map[string]int{}
		for page := 0; ; page++ {
			got, err := s.Runs(t.Context(), ann, f)
			must(t, err)
			for _, run := range got.Runs {
				seen[run.Run]++
			}
			if f.Before = string(got.Next); f.Before == "" {
				break
			}
			for range 5 {
				name := fmt.Sprint("r", r.IntN(200))
				clock.add(time.Millisecond)
				_, err := s.Save(t.Context(), ann, &ckpt.SaveRequest{Agent: "a", Run: name, Kind: ckpt.KindRoutine, ContentType: ckpt.ContentTypeJSON, State: []byte(`1`)})
				must(t, err)
			}
			start(fmt.Sprint("new", page, "-", r.IntN(1e9)))
		}
		for i := range 200 {
			if n := seen[fmt.Sprint("r", i)]; n != 1 {
				t.Errorf("%+v: r%d came %d times", f, i, n)
			}
		}
	}
}

// TestRunsAreFoundByWhatTheyAreNow: runs are found by their present labels and
// goals, after these changed, were removed with a run, or came with an import.
func TestRunsAreFoundByWhatTheyAreNow(t *testing.T) {
	t.Parallel()
	s, _ := open(t)
	ref := ckpt.RunRef{Agent: "a", Run: "r"}
	_, _, err := s.StartRun(t.Context(), ann, ckpt.RunRequest{Agent: "a", Run: "r", Goal: "Old words", Labels: ckpt.Labels{"k": "old"}})
	must(t, err)
	_, _, err = s.EndRun(t.Context(), ann, ref, ckpt.EndRequest{Status: ckpt.RunCompleted})
	must(t, err)
	_, _, err = s.StartRun(t.Context(), ann, ckpt.RunRequest{Agent: "a", Run: "r", Goal: "New \"words\"\nand/more", Labels: ckpt.Labels{"k": "new"}})
	must(t, err)
	found := func(f ckpt.RunFilter) int { return len(names(t, s, ann, f)) }
	for name, want := range map[string]struct {
		f ckpt.RunFilter
		n int
	}{
		"old label": {ckpt.RunFilter{Labels: ckpt.Labels{"k": "old"}}, 0}, "new label": {ckpt.RunFilter{Labels: ckpt.Labels{"k": "new"}}, 1},
		"old goal": {ckpt.RunFilter{Goal: "old"}, 0}, "new goal": {ckpt.RunFilter{Goal: "WORDS more"}, 1},
	} {
		if got := found(want.f); got != want.n {
			t.Errorf("%s: %d found", name, got)
		}
	}
	_, err = s.Erase(t.Context(), ann, "a")
	must(t, err)
	var left int
	must(t, s.RO.Get(&left, `SELECT count(*) FROM run_terms`))
	if left > 0 {
		t.Errorf("%d rows are left after the erasure", left)
	}
}

// BenchmarkFindRuns measures the first page of each filter over 100,000 runs,
// in both orders.
func BenchmarkFindRuns(b *testing.B) {
	s, _ := open(b)
	manyRuns(b, s, 100_000)
	for name, f := range filters() {
		for _, f.Sort = range []ckpt.RunSort{ckpt.SortUpdated, ckpt.SortStarted} {
			b.Run(name+"/"+string(f.Sort), func(b *testing.B) {
				for b.Loop() {
					if _, err := s.Runs(b.Context(), ann, f); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
