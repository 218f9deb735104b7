package console

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"testing"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

// TestPolicyIsChangedOnce opens the form of a policy twice. The second operator, who saw the policy before the
// first one changed it, is refused.
func TestPolicyIsChangedOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.save("coder", "one", `{"n": 1}`)
	if _, err := w.client.SetOwnPolicy(t.Context(), "coder", ckpt.JSON(`{"ended_keep":"9d","budget":{"steps":7}}`)); err != nil {
		t.Fatal(err)
	}
	page := w.page("ask/policy?" + url.Values{"owner": {w.owner}, "agent": {"coder"}}.Encode())
	_, after, _ := strings.Cut(page, `name="tag" value="`)
	tag, _, _ := strings.Cut(after, `"`)
	if tag == "" || !strings.Contains(page, `name="ended_keep" value="9d"`) || !strings.Contains(page, "&#34;steps&#34;: 7") {
		t.Fatalf("the form does not show the policy: %s", page)
	}
	typed := url.Values{"owner": {w.owner}, "agent": {"coder"}, "tag": {unescaped(tag)}, "ended_keep": {"9d"}, "routine_keep": {"5"}}
	first, page := w.form("ask/policy?" + typed.Encode())
	if !strings.Contains(page, "− routine_keep: not set\n&#43; routine_keep: 5") && !strings.Contains(page, "− routine_keep: not set\n+ routine_keep: 5") {
		t.Errorf("the difference is not shown: %s", page)
	}
	typed.Set("routine_keep", "6")
	second, _ := w.form("ask/policy?" + typed.Encode())
	if status, text := w.act("policy", first); status != 422 {
		t.Errorf("without a reason it is answered with %d: %s", status, text)
	}
	first.Set("reason", "five are enough")
	second.Set("reason", "six are better")
	var answers [2]string
	for i := range answers {
		status, text := w.act("policy", first)
		if answers[i] = text; status != 200 {
			t.Fatalf("the change, sent %d times, is answered with %d: %s", i+1, status, text)
		}
	}
	if answers[0] != answers[1] {
		t.Errorf("the same form is answered with %q and %q", answers[0], answers[1])
	}
	forgets := &world{browser: w.console.open(), t: t} // a session that does not know what was done
	lost := maps.Clone(first)
	lost.Set("csrf", forgets.csrf)
	if status, text := forgets.act("policy", lost); status != 409 {
		t.Errorf("the same change from another session is answered with %d: %s", status, text)
	}
	lost.Set("again", "1")
	if status, text := forgets.act("policy", lost); status != 200 {
		t.Errorf("a change whose answer was lost is answered with %d: %s", status, text)
	}
	if status, text := w.act("policy", second); status != 409 {
		t.Errorf("who saw an older policy is answered with %d: %s", status, text)
	}
	layers, err := w.client.PolicyLayers(t.Context(), "coder")
	if err != nil {
		t.Fatal(err)
	}
	if p := layers.Policy; p.RoutineKeep != 5 || p.Budget.Steps != 7 {
		t.Errorf("the policy is %s", layers.Agent)
	}
	if all := w.reasons(); !slices.ContainsFunc(slices.Concat(all["policy"], all["set_policy"]), func(s string) bool { return s == "five are enough" }) {
		t.Errorf("the audit log does not say why: %q", all)
	}
}

// TestPolicyAsJSON changes settings that have no field in the form. They are shown as JSON, compared member by
// member, and refused if they are wrong.
func TestPolicyAsJSON(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.save("coder", "one", `{"n": 1}`)
	if _, err := w.client.SetOwnPolicy(t.Context(), "coder", ckpt.JSON(`{"ended_keep":"9d","budget":{"steps":7},"ignore_tools":["poll"]}`)); err != nil {
		t.Fatal(err)
	}
	page := w.page("ask/policy?" + url.Values{"owner": {w.owner}, "agent": {"coder"}}.Encode())
	_, after, _ := strings.Cut(page, `name="tag" value="`)
	tag, _, _ := strings.Cut(after, `"`)
	ask := func(rest string) (url.Values, string) {
		return w.form("ask/policy?" + url.Values{"owner": {w.owner}, "agent": {"coder"}, "tag": {unescaped(tag)}, "ended_keep": {"9d"}, "rest": {rest}}.Encode())
	}
	for rest, want := range map[string]string{
		`{"budget": {"steps": 7}, "ignore_tools": ["poll"]}`: "nothing differs",
		`[1]`:                   "not a JSON object: write one",
		`{"budget":`:            "not JSON",
		`{"ended_keep": "1d"}`:  "a field of its own",
		`{"no_such": 1}`:        "no_such",
		`{"sensitivty": "low"}`: "sensitivty",
		`{"detectors": {"repeat": {"warn": -1}}}`: "repeat",
	} {
		path := w.base + "ask/policy?" + url.Values{"owner": {w.owner}, "agent": {"coder"}, "tag": {unescaped(tag)}, "ended_keep": {"9d"}, "rest": {rest}}.Encode()
		if page := w.text("GET", path, nil); !strings.Contains(page, want) {
			t.Errorf("%s is answered without %q: %s", rest, want, page)
		}
	}
	form, page := ask(`{"budget": {"steps": 7}, "detectors": {"stale": {"tier": "warn"}}}`)
	if !strings.Contains(page, "ignore_tools: not set") || !strings.Contains(page, "− detectors: not set") || strings.Contains(page, "budget:") {
		t.Errorf("the difference is wrong: %s", page)
	}
	form.Set("reason", "less noise")
	if status, text := w.act("policy", form); status != 200 {
		t.Fatalf("the change is answered with %d: %s", status, text)
	}
	layers, err := w.client.PolicyLayers(t.Context(), "coder")
	if err != nil {
		t.Fatal(err)
	}
	if p := layers.Policy; p.Budget.Steps != 7 || len(p.IgnoreTools) != 0 || p.Detectors["stale"].Tier != "warn" || p.EndedKeep != ckpt.Duration(9*ckpt.Day) {
		t.Errorf("the policy is %s", layers.Agent)
	}
}

// TestALengthOfTimeInWords: a policy form says how to write a length of time, for each field of that kind.
func TestALengthOfTimeInWords(t *testing.T) {
	for _, p := range policyFields {
		change := policyChange{own: map[string]json.RawMessage{}}
		err := change.field(p.name, p.kind, "5")
		if want := p.kind == aTime; want != (err != nil) || want && !strings.Contains(err.Error(), "write a length of time, for example 24h or 7d") {
			t.Errorf("5 as %s is answered with %v", p.name, err)
		}
	}
}

// TestALabelIsWrittenOnce: the form for labels refuses two values for one name.
func TestALabelIsWrittenOnce(t *testing.T) {
	for _, text := range []string{"a=1\na=2", "a = 1\n a=1", "was=x\nwas=y"} {
		if labels, err := readLabels(text, ckpt.Labels{"was": "x"}); err == nil || !strings.Contains(err.Error(), "twice") {
			t.Errorf("%q is read as %v, %v", text, labels, err)
		}
	}
}

// TestPruneAsItWasShown draws the form of a prune, and changes the policy before the form is sent.
func TestPruneAsItWasShown(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for n := range 4 {
		w.save("coder", "one", fmt.Sprintf(`{"n": %d}`, n))
	}
	path := "ask/prune?" + url.Values{"owner": {w.owner}, "agent": {"coder"}}.Encode()
	values, page := w.form(path)
	if !strings.Contains(page, "stay.") {
		t.Errorf("the form has no forecast: %s", page)
	}
	old := url.Values{}
	for name, v := range values {
		old[name] = v
	}
	old.Set("list", "another")
	old.Set("reason", "the disk is full")
	if status, text := w.act("prune", old); status != 409 {
		t.Errorf("a form whose list has changed is answered with %d: %s", status, text)
	}
	if status, _ := w.act("prune", values); status != 422 {
		t.Errorf("without a reason it is answered with %d", status)
	}
	values.Set("reason", "the disk is full")
	if _, err := w.client.SetOwnPolicy(t.Context(), "coder", ckpt.JSON(`{"routine_keep":2}`)); err != nil {
		t.Fatal(err)
	}
	values, _ = w.form(path)
	values.Set("reason", "the disk is full")
	_, first := w.act("prune", values)
	if status, text := w.act("prune", values); status != 200 || text != first {
		t.Errorf("the prune is answered with %q, and sent again with %d: %q", first, status, text)
	}
	if all := w.reasons(); !slices.Contains(all["prune"], "the disk is full") {
		t.Errorf("the audit log does not say why: %q", all)
	}
}

// TestAMistakeKeepsWhatWasTyped: the page of other thresholds stays open, and says what is wrong.
func TestAMistakeKeepsWhatWasTyped(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.save("coder", "one", `{"n": 1}`)
	path := w.base + "drift/whatif?" + url.Values{"of": {pack(w.owner + "\ncoder")}, "rule": {"repeat"}, "warn": {"many"}}.Encode()
	if r := w.send("GET", path, nil, nil); r.StatusCode != 422 {
		t.Errorf("a mistake is answered with %s", r.Status)
	}
	for _, want := range []string{`name="rule" value="repeat"`, `name="warn" value="many"`, "the threshold warn is", `role="alert"`} {
		if page := unescaped(w.text("GET", path, nil)); !strings.Contains(page, want) {
			t.Errorf("the page has no %q: %s", want, page)
		}
	}
}

// TestWhatIf records a run that repeats itself, and evaluates it with other thresholds.
func TestWhatIf(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	run, _, err := w.client.StartRun(t.Context(), ckpt.RunRequest{Agent: "coder", Run: "one"})
	if err != nil {
		t.Fatal(err)
	}
	for n := range 6 {
		_, _, err := w.client.BeginStep(t.Context(), ckpt.RunRef{Agent: "coder", Run: "one"}, ckpt.StepRequest{
			Key: fmt.Sprint(n), Name: "look", Epoch: &run.Epoch, Status: ckpt.StepSucceeded, Args: ckpt.JSON(`{"at":"x"}`), Result: ckpt.JSON(`"y"`),
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	of := "coder"
	ask := func(warn string) string {
		q := url.Values{"of": {pack(w.owner + "\n" + of)}, "rule": {"repeat"}, "warn": {warn}, "critical": {"15"}}
		_, table, _ := strings.Cut(w.page("drift/whatif?"+q.Encode()), `id="whatif"`)
		table, _, _ = strings.Cut(table, "</section>")
		return table
	}
	row := `<td class="b">repeat</td><td>warn</td><td class="r">`
	lax, strict := ask("10"), ask("2")
	if !strings.Contains(lax, row+`1</td><td class="r b">0</td>`) || !strings.Contains(strict, row+`1</td><td class="r b">1</td>`) {
		t.Errorf("with a threshold of 10: %s\nof 2: %s", lax, strict)
	}
	of = "" // all agents
	if all := ask("2"); all != strict {
		t.Errorf("of all agents: %s\nof the only one: %s", all, strict)
	}
}

// TestAPolicyWithALargeSchema changes another setting of a policy whose schema is larger than an ordinary header.
func TestAPolicyWithALargeSchema(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.save("coder", "one", `{"n": 1}`)
	description, err := json.Marshal(strings.Repeat("long and \"quoted\" ", 3000))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.client.SetOwnPolicy(t.Context(), "coder", ckpt.JSON(`{"schema":{"description":`+string(description)+`}}`)); err != nil {
		t.Fatal(err)
	}
	page := w.page("ask/policy?" + url.Values{"owner": {w.owner}, "agent": {"coder"}}.Encode())
	_, after, _ := strings.Cut(page, `name="tag" value="`)
	tag, _, _ := strings.Cut(after, `"`)
	_, after, _ = strings.Cut(page, `name="rest"`)
	_, after, _ = strings.Cut(after, ">")
	rest, _, _ := strings.Cut(after, "</textarea>")
	typed := url.Values{"owner": {w.owner}, "agent": {"coder"}, "tag": {unescaped(tag)}, "routine_keep": {"5"}, "rest": {unescaped(rest)}}
	if page := w.page("ask/policy?" + typed.Encode()); !strings.Contains(page, "routine_keep: not set") || strings.Contains(page, "schema:") {
		t.Errorf("the difference is wrong: %.2000s", page)
	}
}

// TestTheChainIsChecked opens the page that makes the daemon check its audit log.
func TestTheChainIsChecked(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.save("coder", "one", `{"n": 1}`)
	if page := w.page("audit/chain"); !strings.Contains(page, "Chain holds") {
		t.Errorf("the chain is not checked: %s", page)
	}
}
