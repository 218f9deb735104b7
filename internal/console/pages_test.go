package console

import (
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/survey"
)

// TestSystemTellsSettings shows the settings in force of a real daemon.
func TestSystemTellsSettings(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	page := w.page("system")
	_, settings, _ := strings.Cut(page, `id="settings"`)
	for _, want := range []string{"backup.keep", w.client.Socket, "default"} {
		if !strings.Contains(settings, want) {
			t.Errorf("the page does not say %q", want)
		}
	}
}

var rowOfAudit = regexp.MustCompile(`<tr><td class="r m">(\d+)</td>`)

// TestAuditWithSQLite: the statement of the audit page finds the same rows as the page, for each filter.
func TestAuditWithSQLite(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for n := range 6 {
		w.save("coder", "one", fmt.Sprintf(`{"n": %d}`, n))
	}
	w.save("other", "two", `{"n": 1}`)
	unknown := ckpt.OperationEnd{Key: "none", Status: ckpt.OperationFailed}
	if _, _, err := w.client.EndOperation(t.Context(), ckpt.RunRef{Agent: "coder", Run: "one"}, unknown); err == nil {
		t.Error("an operation that is not there has ended")
	}
	if !w.console.daemon.isAdminNow(t) {
		if page := w.page("audit"); strings.Contains(page, "sqlite3 -readonly") {
			t.Error("a user is shown a statement about the whole database")
		}
		return
	}
	log, err := sql.Open("sqlite", "file:"+w.file+"?mode=ro")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = log.Close() }()
	for _, q := range []url.Values{{}, {"what": {"all"}}, {"what": {"refused"}}, {"what": {"remove"}}, {"what": {"save"}}, {"what": {"all"}, "agent": {"other"}}} {
		page := w.page("audit?" + q.Encode())
		_, text, _ := strings.Cut(page, `ckpt.db "`)
		text, _, _ = strings.Cut(text, `"</pre>`)
		var shown, found []string
		for _, m := range rowOfAudit.FindAllStringSubmatch(page, -1) {
			shown = append(shown, m[1])
		}
		rows, err := log.QueryContext(t.Context(), unescaped(text))
		if err != nil {
			t.Fatalf("%s: %v: %s", q, err, text)
		}
		for rows.Next() {
			var n string
			var rest [8]any
			if err := rows.Scan(&n, &rest[0], &rest[1], &rest[2], &rest[3], &rest[4], &rest[5], &rest[6], &rest[7]); err != nil {
				t.Fatal(err)
			}
			found = append(found, n)
		}
		if err := errors.Join(rows.Err(), rows.Close()); err != nil {
			t.Fatal(err)
		}
		if len(shown) == 0 || !slices.Equal(shown, found) {
			t.Errorf("%v: the page has the rows %q, and the statement %q: %s", q, shown, found, text)
		}
	}
}

// TestTheStatementIsForAdministrators: the numbers of rows that other users see are not those of the database.
func TestTheStatementIsForAdministrators(t *testing.T) {
	if v := viewAudit(frameForTests(), statusForTests(), auditForTests(), 0, 7, url.Values{}); v.SQL != "" {
		t.Errorf("a user is shown %s", v.SQL)
	}
}

// TestOneMoreRun: a row for more runs is also right for one run.
func TestOneMoreRun(t *testing.T) {
	for what, want := range map[string][2]string{
		survey.NeedFindings: {"1 more run has critical findings", "2 more runs have critical findings"},
		survey.NeedSecrets:  {"1 more run has what looks like a secret", "2 more runs have what looks like a secret"},
		survey.NeedLostRuns: {"1 more run that nobody runs", "2 more runs that nobody runs"},
	} {
		for i := range want {
			if row := sharedNeed("/s/test/", &survey.Need{What: what, Count: int64(i + 1)}, needRow{}); row.Title != want[i] {
				t.Errorf("the row is %q, not %q", row.Title, want[i])
			}
		}
	}
}

// TestRowsKeepTheirPlaces: a save changes which run the daemon names first. The page keeps the order of its rows.
func TestRowsKeepTheirPlaces(t *testing.T) {
	o := overviewForTests()
	o.Runs = nil
	for i, name := range []string{"a", "b", "c", "d"} {
		o.Runs = append(o.Runs, survey.RunLine{Owner: "uid:1001", Agent: "bot", Run: name, Status: ckpt.RunRunning, StartedAt: after(float64(i / 2))})
	}
	o.Runs[3].Status = ckpt.RunInterrupted
	names := func() (list []string) {
		for _, row := range viewOverview(frameForTests(), o, false).Rows {
			list = append(list, row.Name)
		}
		return list
	}
	first := names()
	if want := []string{"bot / c", "bot / a", "bot / b", "bot / d"}; !slices.Equal(first, want) {
		t.Errorf("the rows are %q, want %q: those that run, the newest first", first, want)
	}
	slices.Reverse(o.Runs)
	if second := names(); !slices.Equal(first, second) {
		t.Errorf("the rows were %q and are %q", first, second)
	}
}

// TestTheRunListHasEarlierLives: a life that has ended is listed when it is asked for, and has its page.
func TestTheRunListHasEarlierLives(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ref := ckpt.RunRef{Agent: "coder", Run: "one"}
	for _, goal := range []string{"the first life", "the second life"} {
		if _, _, err := w.client.StartRun(t.Context(), ckpt.RunRequest{Agent: ref.Agent, Run: ref.Run, Goal: ckpt.Ref(goal)}); err != nil {
			t.Fatal(err)
		}
		w.save("coder", "one", `{"n": 1}`)
		if _, _, err := w.client.EndRun(t.Context(), ref, ckpt.EndRequest{Status: ckpt.RunCompleted}); err != nil {
			t.Fatal(err)
		}
	}
	if page := w.page("runs"); !strings.Contains(page, "the second life") || strings.Contains(page, "the first life") {
		t.Errorf("the list of present lives is wrong: %s", page)
	}
	path := runPath("", w.owner, "coder", "one~1")
	if page := w.page("runs?lives=all"); !strings.Contains(page, "the first life") || !strings.Contains(page, path) || !strings.Contains(page, "the second life") {
		t.Errorf("the earlier life is not listed with its page %s: %s", path, page)
	}
	if page := w.page(path); !strings.Contains(page, "the first life") {
		t.Errorf("the page of the earlier life is wrong: %s", page)
	}
}

// TestStorageComesInTwoParts checks what the page contains at once, and what
// its script requests afterwards.
func TestStorageComesInTwoParts(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for range 5 {
		w.save("coder", "one", `{"text": "`+strings.Repeat("x", 2000)+`"}`)
	}
	first, whole := w.page("storage"), w.page("storage?whole")
	if strings.Contains(first, "What stays, and why") || !strings.Contains(first, `data-later="`+w.base+`storage?whole"`) {
		t.Error("the page waits for the forecast")
	}
	if !strings.Contains(whole, "What stays, and why") || strings.Contains(whole, "data-later") {
		t.Error("the second part has no forecast")
	}
	if !strings.Contains(whole, "6.0 kB") {
		t.Errorf("the logical bytes of three states are not told: %s", whole)
	}
}

// TestTheTreeOfALongListNeedsLittleMemory: a page shows the last elements of a list, so that it
// need not keep the others.
func TestTheTreeOfALongListNeedsLittleMemory(t *testing.T) {
	state := []byte(`{"list":[` + strings.Repeat("0,", mostDiffState/2-10) + `0]}`)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	root, ok := treeOf(state, nil, nil)
	runtime.ReadMemStats(&after)
	if !ok || root.Kids[0].Size == "" || len(root.Kids[0].Kids) != 4 {
		t.Errorf("the tree is %+v", root)
	}
	if used := after.TotalAlloc - before.TotalAlloc; used > 64<<20 {
		t.Errorf("a state of %d MiB took %d MiB", len(state)>>20, used>>20)
	}
}
