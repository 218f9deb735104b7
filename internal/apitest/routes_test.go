package apitest

import (
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestRoutes sends the whole table, with identities that the test sets.
func TestRoutes(t *testing.T) {
	askAll(t, newSeam)
}

// TestEveryRouteHasARow fails for a call without a row in the table.
func TestEveryRouteHasARow(t *testing.T) {
	calls := described(t)
	for call := range calls {
		if !slices.ContainsFunc(table, func(row row) bool { return row.method+" "+row.path == call }) {
			t.Errorf("%s has no row in the table: who may call it, and what is each caller answered?", call)
		}
	}
	for _, row := range table {
		if !calls[row.method+" "+row.path] {
			t.Errorf("%s %s is no call of the API", row.method, row.path)
		}
	}
}

var (
	pathLine   = regexp.MustCompile(`^  (/\S+):$`)
	methodLine = regexp.MustCompile(`^    (get|put|post|delete|patch|head):$`)
)

// described returns the calls of api/openapi.yaml. Tests of the server compare that file with the
// server's routes.
func described(t *testing.T) map[string]bool {
	t.Helper()
	text, err := os.ReadFile("../../api/openapi.yaml")
	if err != nil {
		t.Fatal(err)
	}
	calls, path := map[string]bool{}, ""
	for line := range strings.Lines(string(text)) {
		line = strings.TrimRight(line, "\n")
		if match := pathLine.FindStringSubmatch(line); match != nil {
			path = match[1]
		}
		if match := methodLine.FindStringSubmatch(line); match != nil {
			calls[strings.ToUpper(match[1])+" "+path] = true
		}
	}
	if len(calls) < 50 {
		t.Fatalf("only %d calls are described", len(calls))
	}
	return calls
}

// askAll sends every row as every caller.
func askAll(t *testing.T, d func() door) {
	t.Helper()
	f := newFixture(t, d)
	for i := range table {
		r := &table[i]
		t.Run(strings.TrimSpace(r.method+" "+r.path+" "+r.name), func(t *testing.T) {
			t.Parallel()
			others(t, f, f.copied(t, d()), r)
			administrators(t, f, f.copied(t, d()), r)
		})
	}
}

func orElse(status, other int) int {
	if status == 0 {
		return other
	}
	return status
}

// others sends the row as callers without any right to it, then as the owner.
func others(t *testing.T, f *fixture, w *world, r *row) {
	mine := f.theOwner
	if r.warm { // before any request, so that it is in memory
		w.want(owner, request{method: "PUT", target: "/v1/agents/assistant/checkpoints/" + warmAgain + "?kind=routine&run=work", contentType: "application/json", body: state(owner, 2)})
		mine = with(mine, "warm", warmAgain)
	}
	before := w.of(owner)
	nothing := missingNames(mine)
	inMine := with(nothing, "agent", mine["agent"]) // of an existing agent

	// The owner requests something that does not exist. This comes first,
	// because some calls create it.
	missing := w.ask(owner, r.fill(with(nothing, "new", newID(1)), ""))
	if want := orElse(r.missing, r.stranger); missing.status != want {
		t.Errorf("what nobody has: %d %s, want %d", missing.status, missing.body, want)
	}
	missingInMine := missing
	if r.byID {
		missingInMine = w.ask(owner, r.fill(with(inMine, "new", newID(7)), ""))
	}
	if missing.status/100 == 2 {
		before = w.of(owner) // the call has created it
	}

	got := w.ask(stranger, r.fill(with(mine, "new", newID(2)), ""))
	check(t, "a stranger", got, r.stranger, owner, r)
	alike(t, "a stranger's", r, mine, got, nothing, missing)
	if got := w.ask(stranger, r.fill(with(mine, "new", newID(2)), owner.owner())); got.status != http.StatusForbidden {
		t.Errorf("a stranger who names the owner: %d %s", got.status, got.body)
	}

	want := r.owner
	if r.byID || r.everyone {
		want = r.stranger
	}
	theirs := with(mine, "new", newID(3))
	got = w.ask(neighbour, r.fill(theirs, ""))
	check(t, "a neighbour", got, want, owner, r)
	if r.byID {
		alike(t, "a neighbour's", r, mine, got, inMine, missingInMine)
	}
	if after := w.of(owner); after != before {
		t.Errorf("somebody else has changed what the owner has:\n%s", difference(before, after))
	}

	got = w.ask(owner, r.fill(with(mine, "new", newID(4)), ""))
	check(t, "the owner", got, r.owner, neighbour, r)
	if r.shows && !strings.Contains(got.body, owner.canary()) {
		t.Errorf("the owner does not get what he has: %s", got.body)
	}
	if r.method == http.MethodGet && !strings.Contains(r.query, "follow") {
		head := r.fill(mine, "")
		head.method = http.MethodHead
		if got := w.ask(stranger, head); got.status != r.stranger || got.body != "" {
			t.Errorf("HEAD of a stranger: %d %q", got.status, got.body)
		}
	}
}

// administrators request the owner's things, with and without naming the owner.
func administrators(t *testing.T, f *fixture, w *world, r *row) {
	mine := f.theOwner
	if r.warm {
		w.want(owner, request{method: "PUT", target: "/v1/agents/assistant/checkpoints/" + warmAgain + "?kind=routine&run=work", contentType: "application/json", body: state(owner, 2)})
		mine = with(mine, "warm", warmAgain)
	}
	// In the other order, a request without an owner might find nothing left.
	want := orElse(r.admin, r.stranger)
	if want/100 != 2 || !r.byID {
		got := w.ask(administrator, r.fill(with(mine, "new", newID(5)), ""))
		if got.status != want {
			t.Errorf("an administrator who names nobody: %d %s, want %d", got.status, got.body, want)
		}
	}
	if r.everyone {
		return
	}
	told := w.told(administrator, owner)
	naming := owner.owner()
	if r.byID && want/100 == 2 {
		naming = ""
	}
	got := w.ask(administrator, r.fill(with(mine, "new", newID(6)), naming))
	if got.status != r.owner || r.shows && !strings.Contains(got.body, owner.canary()) || strings.Contains(got.body, neighbour.canary()) {
		t.Errorf("an administrator: %d %s, want %d", got.status, got.body, r.owner)
	}
	if now := w.told(administrator, owner); now == told {
		t.Error("there is no audit row of what an administrator did or read")
	}
	if !r.star {
		return
	}
	got = w.ask(administrator, r.fill(mine, "*"))
	if got.status != r.owner || r.shows && !(strings.Contains(got.body, owner.canary()) && strings.Contains(got.body, neighbour.canary())) {
		t.Errorf("an administrator about everybody: %d %s", got.status, got.body)
	}
}

const warmAgain = "019cad25-8e6e-7a5f-9d0e-000000000001"

func newID(n int) string { return "019cad25-8e6f-7a5f-9d0e-00000000000" + string(rune('0'+n)) }

func with(n names, name, value string) names {
	m := names{}
	for k, v := range n {
		m[k] = v
	}
	m[name] = value
	return m
}

// check compares an answer with the expected one, and checks that it contains
// nothing of another user.
func check(t *testing.T, name string, got answer, status int, other who, r *row) {
	t.Helper()
	if got.status != status {
		t.Errorf("%s: %d %s, want %d", name, got.status, got.body, status)
	}
	for _, canary := range []string{other.canary(), other.owner()} {
		if strings.Contains(got.body, canary) {
			t.Errorf("%s is told %s: %s", name, canary, got.body)
		}
	}
}

// alike checks that a refusal looks the same for another user's things and for
// missing things.
func alike(t *testing.T, name string, r *row, mine names, got answer, nothing names, missing answer) {
	t.Helper()
	if got.status/100 == 2 {
		return
	}
	if a, b := mine.hide(r, got.body), nothing.hide(r, missing.body); a != b {
		t.Errorf("%s refusal tells the owner's things from missing ones:\n%s\n%s", name, a, b)
	}
}

// difference returns the first line that is not in both texts.
func difference(before, after string) string {
	a, b := strings.Split(before, "\n"), strings.Split(after, "\n")
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return a[i] + "\n" + b[i]
		}
	}
	return "rows were added or removed"
}
