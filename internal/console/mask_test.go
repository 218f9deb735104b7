package console

import (
	"fmt"
	"strings"
	"testing"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

// textsOf returns all lines of a difference.
func textsOf(groups []diffGroup) string {
	var lines []string
	for _, g := range groups {
		for _, l := range g.Lines {
			lines = append(lines, l.Sign+" "+l.Text)
		}
	}
	return strings.Join(lines, "\n")
}

// TestSecretsAreMaskedInDifferences shows values that a finding names as secrets: inside an added
// object, with characters that JSON escapes, and with the value that the state had before.
func TestSecretsAreMaskedInDifferences(t *testing.T) {
	t.Parallel()
	findings := []ckpt.Finding{{Rule: ckpt.RuleSecret, Evidence: []byte(`{"path":"/config/key","kind":"a private key"}`)}}
	for name, c := range map[string]struct {
		state, patch, from string
	}{
		"a secret with lines in an added object": {
			state: `{"config":{"key":"-----BEGIN\nhunter22\n-----END","n":1}}`,
			patch: `[{"op":"add","path":"/config","value":{"key":"-----BEGIN\nhunter22\n-----END","n":1}}]`,
		},
		"a secret with a quotation mark": {
			state: `{"config":{"key":"a\"hunter22<b","n":1}}`,
			patch: `[{"op":"add","path":"/config","value":{"key":"a\"hunter22<b","n":1}}]`,
		},
		"a secret that is replaced": {
			state: `{"config":{"key":"another1"}}`,
			patch: `[{"op":"replace","path":"/config/key","value":"another1"}]`,
			from:  `{"key":"hunter22"}`,
		},
		"a secret that is removed": {
			state: `{"config":{}}`,
			patch: `[{"op":"remove","path":"/config/key"}]`,
			from:  `{"key":"hunter22"}`,
		},
		"a secret that is removed with all around it": {
			state: `{}`,
			patch: `[{"op":"remove","path":"/config"}]`,
			from:  `{"key":"hunter22","n":1}`,
		},
	} {
		d := &ckpt.Diff{Patch: []byte(c.patch)}
		if c.from != "" {
			d.Summary.Changed = []ckpt.DiffField{{Path: "/config", From: []byte(c.from)}}
		}
		groups, _, _ := diffOf(d, append(secretsIn([]byte(c.state), secretPaths(findings)), secretsInDiff(d, secretPaths(findings))...))
		if text := textsOf(groups); strings.Contains(text, "hunter22") || strings.Contains(text, "another1") || !strings.Contains(text, "••••") {
			t.Errorf("%s: the page shows\n%s", name, text)
		}
	}
}

// TestSecretsAreMaskedBesideManyFindings has more findings in a run than its page lists.
func TestSecretsAreMaskedBesideManyFindings(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const secret = "sk-ant-api03-Zq8vT1mWc4RkYx7LpN2dHs9Jf"
	w.save("coder", "one", `{"api_key":"`+secret+`"}`)
	for i := range 70 {
		var others strings.Builder
		for j := range 3 {
			fmt.Fprintf(&others, `"p%d-%d":{"password":"Xk7#mQ2v%dLw9z%d"},`, i, j, i, j)
		}
		w.save("coder", "one", `{`+others.String()+`"n":1}`)
	}
	w.save("coder", "one", `{"api_key":"`+secret+`"}`)
	report, err := w.client.Drift(t.Context(), ckpt.DriftFilter{Agent: "coder", Run: "one", Limit: 200})
	if err != nil || len(report.Secrets) <= 200 {
		t.Fatalf("there are %d secrets: %v", len(report.Secrets), err)
	}
	page := w.page("o/" + w.owner + "/coder/one")
	if strings.Contains(page, secret) {
		t.Error("the page shows a secret that a finding names")
	}
	if page = w.page("o/" + w.owner + "/coder/one?show=secrets"); !strings.Contains(page, secret) {
		t.Error("the secret is not shown when asked for")
	}
}

// TestAForkMasksSecrets: the form of a fork has a state with a secret only if a person asks for it.
func TestAForkMasksSecrets(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const secret = "sk-ant-api03-Zq8vT1mWc4RkYx7LpN2dHs9Jf"
	saved := w.save("coder", "one", `{"api_key":"`+secret+`","n":1}`)
	query := "ask/fork?" + w.formOf(saved, "coder", "one")
	values, page := w.form(query)
	if strings.Contains(page, secret) || strings.Contains(page, `name="state"`) {
		t.Errorf("the form shows a secret that a finding names: %s", page)
	}
	values.Set("name", "two")
	values.Set("reason", "to try another plan")
	if status, text := w.act("fork", values); status != 200 || !strings.Contains(text, "The run two begins with checkpoint 1.") {
		t.Errorf("the form is answered with %d: %s", status, text)
	}
	values, page = w.form(w.formIn(page, "ask/fork?"))
	if !strings.Contains(page, secret) || values.Get("drawn") == "" {
		t.Errorf("the state cannot be changed when asked for: %s", page)
	}
}
