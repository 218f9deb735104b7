package db_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"path/filepath"
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
	if a, b := rowsIn(t, again.String()), rowsIn(t, text); a != b {
		t.Errorf("the export of what was imported is another:\n%s", cmp.Diff(b, a))
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

// TestBadImports: an export that is cut off, changed, extended or made up is refused as a whole, and so are rows that
// come as lines.
func TestBadImports(t *testing.T) {
	t.Parallel()
	_, _, text := exported(t)
	path := filepath.Join(t.TempDir(), "ckpt.db")
	s := openWith(t, options(path, newClock()))
	const (
		anAgent = `{"type":"agent","agent":"a","owner":"uid:1","created_at":"2026-01-01T00:00:00.000Z","policy_at":"2026-01-01T00:00:00.000Z","policy":{}}`
		aRun    = `{"type":"run","run":"r1","row":{"status":"running","epoch":1,"attempt":1,"started_at":"2026-01-01T00:00:00.000Z","updated_at":"2026-01-01T00:00:00.000Z","life":1,"last_seq":0,"accumulated_ms":0,"labels":{},"last_event":0}}`
		aStep   = `{"type":"step","run":"r1","row":{"key":"k","attempt":1,"name":"n","status":"started","started_at":"2026-01-01T00:00:00.000Z","after_seq":0,"stretch":1,"failures":0,"unparsable":false}}`
		aSave   = `{"type":"checkpoint","run":"r1","row":{"id":"019a0000-0000-7000-8000-000000000001","seq":1,"kind":"routine","created_at":"2026-01-01T00:00:00.000Z","size":2,"sha256":"44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a","content_type":"application/json"},"state":{}}`
	)
	run := strings.Replace(aRun, `"last_seq":0`, `"last_seq":1`, 1)
	with := func(old, new string, of string) string {
		if !strings.Contains(of, old) {
			t.Fatalf("%s is not in %s", old, of)
		}
		return strings.Replace(of, old, new, 1)
	}
	if _, err := openWith(t, options(filepath.Join(t.TempDir(), "ckpt.db"), newClock())).Import(t.Context(), ann, ckpt.ImportRequest{},
		strings.NewReader(linesOf(anAgent, aSave, run, aStep))); err != nil {
		t.Fatal(err)
	}
	bad := map[string]string{
		"empty": "", "text": "hello\n", "cut off": text[:len(text)-20], "cut off in the middle": text[:len(text)/2], "twice": text + text,
		"another database": "SQLite format 3\x00" + strings.Repeat("\x00", 5000),
		"no last line":     strings.Join(strings.SplitAfter(linesOf(anAgent, aRun), "\n")[:3], ""), "a line more": linesOf(anAgent, aRun) + anAgent + "\n",
		"changed lines": with(`"agent":"a"`, `"agent":"b"`, linesOf(anAgent, aRun)), "version": with(`"version":1`, `"version":2`, linesOf(anAgent)),
		"no agent": linesOf(), "agent twice": linesOf(anAgent, aRun, anAgent), "agent": linesOf(with(`"agent":"a"`, `"agent":"../a"`, anAgent)),
		"owner": linesOf(with(`"owner":"uid:1"`, `"owner":"*"`, anAgent)), "policy": linesOf(with(`"policy":{}`, `"policy":{"routine_keep":-1}`, anAgent)),
		"no run": linesOf(anAgent, aSave), "run twice": linesOf(anAgent, aRun, aRun), "status": linesOf(anAgent, with(`"running"`, `"starting"`, aRun)),
		"ended": linesOf(anAgent, with(`"running"`, `"failed"`, aRun)), "last_seq": linesOf(anAgent, aSave, aRun), "a row of no run": linesOf(anAgent, aStep),
		"a step twice": linesOf(anAgent, aRun, aStep, aStep), "a step's args": linesOf(anAgent, aRun, with(`"name"`, `"args_text":"{","name"`, aStep)),
		"unknown type": linesOf(anAgent, aRun, with(`"type":"step"`, `"type":"other"`, aStep)), "unknown column": linesOf(anAgent, aRun, with(`"key"`, `"n":1,"key"`, aStep)),
		"unknown field": linesOf(anAgent, aRun, with(`"type":"step"`, `"type":"step","x":1`, aStep)), "no name": linesOf(anAgent, aRun, with(`"name":"n",`, ``, aStep)),
		"an event too late": linesOf(anAgent, aRun, `{"type":"event","run":"r1","row":{"seq":1,"at":"2026-01-01T00:00:00.000Z","type":"t","payload":{}}}`),
		"a time":            linesOf(anAgent, aRun, with(`00.000Z","after_seq"`, `00Z","after_seq"`, aStep)),
		"a write":           linesOf(anAgent, aRun, `{"type":"graph_write","run":"r1","row":{"checkpoint":"c","task":"t","idx":0,"path":"","channel":"x","type":"json","size":2,"crc":1,"data":"e30="}}`),
		"a thread":          linesOf(anAgent, aRun, `{"type":"graph_thread","run":"r1","row":{"thread":"t","ns":""}}`),
		"state":             linesOf(anAgent, with(`"state":{}`, `"state":[]`, aSave), run), "size": linesOf(anAgent, with(`"size":2`, `"size":1`, aSave), run),
		"id": linesOf(anAgent, with(`"id":"019a`, `"id":"x`, aSave), run), "base64": linesOf(anAgent, with(`"state":{}`, `"state_base64":"%%"`, aSave), run),
		"id twice":             linesOf(anAgent, aSave, with(`"seq":1`, `"seq":2`, aSave), with(`"last_seq":1`, `"last_seq":2`, run)),
		"a later state":        linesOf(anAgent, with(`"seq":1`, `"seq":1,"state_of":5`, aSave), run),
		"a life":               linesOf(anAgent, with(`"run":"r1"`, `"run":"r1#1"`, aRun)),
		"two of one life":      linesOf(anAgent, aRun, with(`"run":"r1"`, `"run":"r1#2"`, aRun)),
		"a wrong number":       linesOf(anAgent, with(`"epoch":1`, `"epoch":9223372036854775807`, aRun)),
		"changed and resealed": "", "agents": "", "runs": "", "ids": "",
	}
	for name, statements := range map[string]string{"changed and resealed": `UPDATE checkpoints SET step = 't'`, "agents": `UPDATE agents SET name = '../a'`,
		"runs": `UPDATE runs SET name = 'r1~0' WHERE id = 1`, "ids": `UPDATE checkpoints SET id = 'x'`} {
		bad[name] = forged(t, text, statements)
	}
	for name, bad := range bad {
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
