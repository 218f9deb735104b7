package db_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db"
)

// awkward are states whose bytes an encoder might change.
var awkward = []struct{ contentType, state string }{
	{ckpt.ContentTypeJSON, `{"b":1.50,"a":[ ],"é":"\u00e9<>&` + "\u2028" + `"}`}, {ckpt.ContentTypeJSON, "{\n  \"a\": 1\r\n}\n"},
	{ckpt.ContentTypeJSON, ` {"a":1}`}, {ckpt.ContentTypeJSON, "{\"a\":1}\t "}, {ckpt.ContentTypeJSON, `null`}, {ckpt.ContentTypeJSON, `1e400`}, {ckpt.ContentTypeJSON, `-0.0`},
	{"application/x+json; charset=utf-8", `["` + strings.Repeat("long ", 3000) + `"]`}, {"application/octet-stream", "\x00\xff\n"}, {"", ""}, {"text/plain", "{}"},
}

// exported returns an agent that has everything, and its export.
func exported(t *testing.T) (*db.Store, []*ckpt.Saved, string) {
	t.Helper()
	s, c := open(t)
	p := ckpt.DefaultPolicy()
	p.RoutineKeep = 50
	_, err := s.SetPolicy(t.Context(), ann, "a", p)
	must(t, err)
	var all []*ckpt.Saved
	for i, a := range awkward {
		c.add(1e9)
		saved, err := s.Save(t.Context(), ann, &ckpt.SaveRequest{Agent: "a", Run: fmt.Sprintf("r%d", i%2), Kind: ckpt.Kinds[i%3], ContentType: a.contentType, State: []byte(a.state),
			Labels: ckpt.Labels{"i": fmt.Sprint(i)}, Metadata: []byte(`{"i":1}`), Step: "s", Program: &ckpt.Program{Source: "x <&> y", Executed: 1}})
		must(t, err)
		all = append(all, saved)
	}
	_, err = s.Patch(t.Context(), ann, all[0].ID, pin(t, true))
	must(t, err)
	all[0].Pinned = true
	var out bytes.Buffer
	must(t, s.Export(t.Context(), ann, "a", &out))
	return s, all, out.String()
}

// TestExportAndImport brings an agent into another database byte for byte, with
// everything that is known about it. A second import changes nothing.
func TestExportAndImport(t *testing.T) {
	t.Parallel()
	_, all, text := exported(t)
	path := filepath.Join(t.TempDir(), "ckpt.db")
	s := openWith(t, options(path, newClock()))
	report, err := s.Import(t.Context(), ann, ckpt.ImportRequest{}, strings.NewReader(text))
	must(t, err)
	want := &ckpt.ImportReport{Agent: "a", Agents: []string{"a"}, Version: 1, Runs: 2, Imported: len(all), Uncertain: []ckpt.UncertainRun{}, Pruned: []string{}}
	if diff := cmp.Diff(want, report); diff != "" {
		t.Error(diff)
	}
	for i, want := range all {
		got, err := s.Checkpoint(t.Context(), ann, want.ID, true)
		must(t, err)
		if string(got.State) != awkward[i].state {
			t.Errorf("state %d became %q", i, got.State)
		}
		got.State = nil
		got.StoredSize = want.StoredSize // it depends on what else is stored
		if diff := cmp.Diff(want.Checkpoint, *got); diff != "" {
			t.Errorf("checkpoint %d:\n%s", i, diff)
		}
	}
	if p, err := s.Policy(t.Context(), ann, "a"); err != nil || p.RoutineKeep != 50 {
		t.Errorf("the policy did not come along: %+v, %v", p, err)
	}
	report, err = s.Import(t.Context(), ann, ckpt.ImportRequest{}, strings.NewReader(text))
	must(t, err)
	if report.Present != len(all) || report.Imported != 0 {
		t.Errorf("the second time: %+v", report)
	}
	var again bytes.Buffer
	must(t, s.Export(t.Context(), ann, "a", &again))
	if again.String() != text {
		t.Errorf("the export of what was imported is another:\n%s", cmp.Diff(text, again.String()))
	}
	sound(t, path)
}

// TestImportForAnother imports to another owner and to another name in the same
// database. Ids that are already used are replaced, the same way each time.
func TestImportForAnother(t *testing.T) {
	t.Parallel()
	s, all, text := exported(t)
	for _, to := range []struct {
		sc    ckpt.Scope
		agent string
	}{{bob, ""}, {ann, "copy"}} {
		report, err := s.Import(t.Context(), to.sc, ckpt.ImportRequest{Agent: to.agent}, strings.NewReader(text))
		must(t, err)
		renamed := 0 // another owner may have the same ids
		if to.agent != "" {
			renamed = len(all)
		}
		if report.Imported != len(all) || len(report.Renamed) != renamed {
			t.Fatalf("%+v", report)
		}
		agent := map[bool]string{true: "a", false: to.agent}[to.agent == ""]
		here := func(id string) string {
			if to := report.Renamed[id]; to != "" {
				return to
			}
			return id
		}
		for i, from := range all {
			got, err := s.Checkpoint(t.Context(), to.sc, here(from.ID), true)
			must(t, err)
			if string(got.State) != awkward[i].state || got.Agent != agent || got.Owner != to.sc.Owner || string(got.Parent) != here(string(from.Parent)) {
				t.Errorf("checkpoint %d: %+v", i, got)
			}
			must(t, ckpt.CheckID(got.ID))
		}
		again, err := s.Import(t.Context(), to.sc, ckpt.ImportRequest{Agent: to.agent}, strings.NewReader(text))
		must(t, err)
		if again.Present != len(all) || again.Imported != 0 {
			t.Errorf("the second time: %+v", again)
		}
	}
}

// TestBadImports: an export that is torn, changed, extended or made up is
// refused as a whole.
func TestBadImports(t *testing.T) {
	t.Parallel()
	_, _, text := exported(t)
	lines := strings.SplitAfter(text, "\n")
	last := len(lines) - 2
	sealed := func(change func(string) string) string { return seal(change(strings.Join(lines[:last], ""))) }
	first := func(pattern, with string) string {
		return sealed(func(body string) string {
			at := regexp.MustCompile(pattern).FindStringIndex(body)
			if at == nil {
				t.Fatalf("%s is not in the export", pattern)
			}
			return body[:at[0]] + with + body[at[1]:]
		})
	}
	if sealed(func(s string) string { return s }) != text {
		t.Fatal("the test does not seal as the export does")
	}
	row := func(rows ...string) string {
		return sealed(func(body string) string { return body + strings.Join(rows, "\n") + "\n" })
	}
	const aStep = `{"type":"step","run":"r1","row":{"key":"k","attempt":1,"name":"n","status":"started","started_at":"2026-01-01T00:00:00.000Z","after_seq":0,"stretch":1,"failures":0,"unparsable":false}}`
	path := filepath.Join(t.TempDir(), "ckpt.db")
	s := openWith(t, options(path, newClock()))
	for name, bad := range map[string]string{
		"empty": "", "text": "hello\n", "no last line": strings.Join(lines[:last], ""), "torn": text[:len(text)-20], "torn in the middle": text[:len(text)/2],
		"a line less": strings.Join(append(append([]string{}, lines[:2]...), lines[3:]...), ""), "a line more": text + lines[1], "twice": text + text,
		"changed":       strings.Replace(text, `"step":"s"`, `"step":"t"`, 1),
		"no first line": strings.Join(lines[1:], ""), "version": first(`"version":1`, `"version":2`), "policy": first(`"routine_keep":50`, `"routine_keep":-1`),
		"agent": first(`"agent":"a"`, `"agent":"../a"`), "kind": first(`"kind":"routine"`, `"kind":"odd"`), "state": first(`"b":1.50`, `"b":1.51`),
		"id": first(`"id":"[^"]*"`, `"id":"x"`), "no id": first(`"id":"[^"]*"`, `"id":""`), "parent": first(`"parent":"[^"]*"`, `"parent":"x y"`),
		"operation": first(`"step":"s"`, `"step":"s","operation":"a\u0000b"`), "no time": first(`"created_at":"[^"]*","size"`, `"created_at":null,"size"`),
		"base64": first(`"state_base64":"[^"]*"`, `"state_base64":"%%"`), "unknown field": first(`"type":"checkpoint"`, `"type":"checkpoint","x":1`),
		"unknown type": first(`"type":"checkpoint"`, `"type":"other"`), "no row": first(`"row":\{"id"`, `"now":{"id"`), "unknown column": first(`"row":\{"id"`, `"row":{"n":1,"id"`),
		"size": first(`"size":\d+`, `"size":1`), "order": first(`"seq":1,`, `"seq":9,`), "state of a later one": first(`"step":"s"`, `"step":"s","state_of":5`),
		"no agent": sealed(func(string) string { return lines[0] }), "agent twice": sealed(func(body string) string { return body + lines[1] }),
		"no run": sealed(func(body string) string { return body[:strings.Index(body, `{"type":"run"`)] }), "run twice": sealed(func(body string) string { return body + lines[last-1] }),
		"status": first(`"status":"running"`, `"status":"starting"`), "ended": first(`"status":"running"`, `"status":"failed"`), "last_seq": first(`"last_seq":\d+`, `"last_seq":1`),
		"a row of no run": sealed(func(body string) string {
			return lines[0] + lines[1] + `{"type":"event","run":"x","row":{"seq":1,"at":"2026-01-01T00:00:00.000Z","type":"t","payload":{}}}` + "\n"
		}),
		"a wrong event": row(`{"type":"event","run":"r1","row":{"seq":1,"at":"2026-01-01T00:00:00Z","type":"t","payload":{}}}`),
		"events":        row(`{"type":"event","run":"r1","row":{"seq":1,"at":"2026-01-01T00:00:00.000Z","type":"t","payload":{}}}`),
		"a step twice":  row(aStep, aStep),
		"a step's args": row(strings.Replace(aStep, `"name"`, `"args_text":"{","name"`, 1)),
		"a write":       row(`{"type":"graph_write","run":"r1","row":{"checkpoint":"c","task":"t","idx":0,"path":"","channel":"x","type":"json","data":"e30="}}`),
		"a thread":      row(`{"type":"graph_thread","run":"r1","row":{"thread":"t","ns":""}}`),
		"no kinds":      sealWithoutKinds(strings.Join(lines[:last], "")),
		"a mark":        row(`{"type":"mark","run":"r1","row":{"id":"019a0000-0000-7000-8000-000000000001","gone":true}}`),
	} {
		t.Run(name, func(t *testing.T) {
			_, err := s.Import(t.Context(), ann, ckpt.ImportRequest{}, strings.NewReader(bad))
			wantCode(t, err, ckpt.CodeInvalid)
			if strings.Contains(err.Error(), "\n") {
				t.Errorf("more than a line: %v", err)
			}
			agents, err := s.Agents(t.Context(), ann, ckpt.AgentFilter{})
			must(t, err)
			if len(agents.Agents) != 0 {
				t.Error("something was imported")
			}
			if left, _ := filepath.Glob(filepath.Join(filepath.Dir(path), ".*-aside-*")); len(left) > 0 {
				t.Errorf("left behind: %v", left)
			}
		})
	}
}

// TestImportRefusals: an invalid name, a body that breaks off, an id whose
// state differs.
func TestImportRefusals(t *testing.T) {
	t.Parallel()
	s, all, text := exported(t)
	_, err := s.Import(t.Context(), ann, ckpt.ImportRequest{Agent: "/"}, strings.NewReader(text))
	wantCode(t, err, ckpt.CodeInvalid)
	_, err = s.Import(t.Context(), ann, ckpt.ImportRequest{}, io.MultiReader(strings.NewReader(text[:100]), broken{errors.New("the client went away")}))
	wantCode(t, err, ckpt.CodeInvalid)
	_, err = s.Import(t.Context(), ann, ckpt.ImportRequest{}, broken{ckpt.Errorf(ckpt.CodeTooLarge, "too large")})
	wantCode(t, err, ckpt.CodeTooLarge)
	other, _ := open(t)
	r := request("a", ckpt.KindRoutine, `"another state"`)
	r.ID = all[3].ID
	_, err = other.Save(t.Context(), ann, r)
	must(t, err)
	_, err = other.Import(t.Context(), ann, ckpt.ImportRequest{}, strings.NewReader(text))
	wantCode(t, err, ckpt.CodeConflict)
	if got := seqs(t, other, ann, "a"); len(got) != 1 {
		t.Errorf("the refused import left %v", got)
	}
	if err := s.Export(t.Context(), ann, "a", broken{errors.New("the client went away")}); err == nil {
		t.Error("an export into nothing succeeded")
	}
}

type broken struct{ error }

func (b broken) Read([]byte) (int, error)  { return 0, b.error }
func (b broken) Write([]byte) (int, error) { return 0, b.error }

// TestTheAuditHasAnImportedPolicy: an auditor reads a policy that was imported in the same way as one that was set.
func TestTheAuditHasAnImportedPolicy(t *testing.T) {
	t.Parallel()
	s, _, text := exported(t)
	path := filepath.Join(t.TempDir(), "ckpt.db")
	other := openWith(t, options(path, newClock()))
	_, err := other.Import(t.Context(), ann, ckpt.ImportRequest{}, strings.NewReader(text))
	must(t, err)
	must(t, other.Close())
	const ask = "SELECT detail ->> '$.policy.routine_keep' FROM audit_log WHERE action = 'set_policy'"
	if got := sqlite3(t, path, ask); got != "50" {
		t.Errorf("routine_keep in the audit row is %q: %s", got, sqlite3(t, path, "SELECT detail FROM audit_log WHERE action = 'set_policy'"))
	}
	must(t, s.Close())
}

// TestAnOwnerMaySayTimedOut: a run whose owner ended it as timed_out says so after an export and an import, and is resumed.
func TestAnOwnerMaySayTimedOut(t *testing.T) {
	t.Parallel()
	s, c, p := openRuns(t)
	run, _, err := s.StartRun(t.Context(), as(11), ckpt.RunRequest{Agent: "a", PID: 11})
	must(t, err)
	saved := save(t, s, as(11), "a", ckpt.KindRoutine, `{"n":1}`)
	ended, _, err := s.EndRun(t.Context(), as(11), at(run.Epoch), ckpt.EndRequest{Status: ckpt.RunTimedOut, Reason: "no answer for an hour"})
	must(t, err)
	if ended.Status != ckpt.RunTimedOut {
		t.Fatalf("the run is %s", ended.Status)
	}
	other, _ := copyOf(t, c, p, exportOf(t, s, "a"))
	for name, s := range map[string]*db.Store{"here": s, "imported": other} {
		got, err := s.Run(t.Context(), ann, mainRun)
		must(t, err)
		if got.Status != ckpt.RunTimedOut {
			t.Errorf("%s the run is %s", name, got.Status)
		}
		plan, _, err := s.Resume(t.Context(), as(12), ckpt.ResumeRequest{Agent: "a", PID: 12, DryRun: true})
		must(t, err)
		if plan.Verdict != ckpt.VerdictResume || plan.Checkpoint == nil || plan.Checkpoint.SHA256 != saved.SHA256 {
			t.Errorf("%s the plan is %+v", name, plan)
		}
	}
}
