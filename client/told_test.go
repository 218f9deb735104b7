package client

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/ipc/client"
	"github.com/google/uuid"
)

// TestWhatSpooledWritesTell: each write is METHOD, a space, the path in the run or the query of a save,
// a space, and the body.
func TestWhatSpooledWritesTell(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		writes []string
		want   string
	}{
		"nothing":  {nil, "offline"},
		"an event": {[]string{`POST events {"events":[{"type":"x"}]}`}, "offline"},
		"the last state counts": {
			[]string{`PUT kind=routine 1`, `PUT kind=recovery&run=r&epoch=3 {"n":2}`},
			`offline, state recovery {"n":2}`,
		},
		"a state knows of the steps before it": {
			[]string{`POST steps {"key":"a","name":"A"}`, `POST steps/a/finish {"status":"succeeded","result":[1]}`, `PUT kind=routine 1`,
				`POST steps {"key":"b","name":"B"}`, `POST steps/b/finish {"status":"succeeded"}`},
			`offline, state routine 1, completed b (B) null, step a [1], step b null`,
		},
		"as the other clients write it": {
			[]string{`POST steps {"key":"a/ü","name":"A","args":null,"epoch":3}`, `POST steps/a%2F%C3%BC/finish {"result":null}`,
				`POST steps {"key":"whole","name":"W","status":"succeeded","result":7}`, `POST steps {"key":"no","name":"no","status":"failed","error":"x"}`,
				`POST operations {"key":"%2E","name":"o","state":null}`, `POST operations/%252E/succeed {"result":null}`},
			`offline, completed a/ü (A) null, completed whole (W) 7, operation %2E, step a/ü null, step whole 7`,
		},
		"only the end of a step and of an operation": {
			[]string{`POST steps/a/finish {"status":"succeeded","result":1}`, `POST operations/o/succeed {}`, `POST operations/p/fail {}`},
			`offline, completed a (a) 1, operation o, step a 1`,
		},
		"steps that were not finished": {
			[]string{`POST steps {"key":"a","name":"A","args":{"x":1}}`, `POST steps {"key":"b","name":"b"}`, `POST steps/b/finish {"status":"failed","error":"no"}`,
				`POST steps {"key":"c","name":"c"}`, `POST steps/c/finish {"status":"failed"}`, `POST steps {"key":"c","name":"c"}`},
			`offline, begun a (A) {"x":1}, begun c (c) null`,
		},
		"steps without a name, as the daemon names them": {
			[]string{`POST steps {"key":"search-3"}`, `POST steps {"key":"fetch_12","status":"succeeded","result":1}`},
			`offline, completed fetch_12 (fetch) 1, begun search-3 (search) null, step fetch_12 1`,
		},
		"a step that was asked for again": {
			[]string{`POST steps {"key":"a","name":"a"}`, `POST steps/a/finish {"status":"succeeded","result":1}`, `PUT kind=routine 1`,
				`POST steps {"key":"a","name":"a"}`, `POST steps/a/finish {"status":"failed"}`},
			`offline, state routine 1, step a 1`,
		},
		"an operation in the middle": {
			[]string{`PUT kind=routine 1`, `POST operations {"key":"o","name":"O","state":{"n":2}}`, `POST end {"status":"interrupted"}`},
			`ask, state pre_operation {"n":2}, open o (O) 1`,
		},
		"an operation that was asked for again": {
			[]string{`POST operations {"key":"o","name":"o"}`, `POST operations/o/succeed {"result":1}`, `POST operations {"key":"o","name":"o","state":9}`},
			`offline, operation o`,
		},
		"the second attempt failed": {
			[]string{`POST operations {"key":"o","name":"o"}`, `POST operations {"key":"o","name":"o"}`, `POST operations/o/fail {"error":"no"}`},
			`ask, open o (o) 1`,
		},
		"the second attempt succeeded": {
			[]string{`POST operations {"key":"o","name":"o"}`, `POST operations {"key":"o","name":"o"}`, `POST operations/o/succeed {}`},
			`ask, open o (o) 1, operation o`,
		},
		"an end that can be resumed": {
			[]string{`PUT kind=routine 1`, `POST steps {"key":"a","name":"a","status":"succeeded"}`,
				`POST end {"status":"awaiting_continuation","continuation_prompt":"go on","state":{"n":2}}`},
			`offline, state routine {"n":2}, step a null, prompt go on`,
		},
		"an end for good": {
			[]string{`PUT kind=routine 1`, `POST steps {"key":"a","name":"a","status":"succeeded"}`, `POST operations {"key":"o","name":"o"}`,
				`POST steps {"key":"b","name":"b"}`, `POST operations/p/succeed {}`, `POST end {"status":"failed","state":5}`},
			"offline",
		},
		"a new beginning": {
			[]string{`PUT kind=routine 1`, `PUT kind=routine {`, `POST steps {`, `POST end {"status":"completed"}`, `POST steps {"key":"b","name":"b","status":"succeeded"}`},
			"offline, completed b (b) null, step b null, skipped 1, skipped 2",
		},
		"a state that cannot be read": {
			[]string{`PUT kind=routine 1`, `POST steps {"key":"a","name":"a","status":"succeeded"}`, `PUT kind=routine {"n":`},
			`offline, state routine 1, completed a (a) null, step a null, skipped 2`,
		},
		"a step that cannot be read": {
			[]string{`PUT kind=routine 1`, `POST steps/a/finish {`},
			`offline, state routine 1, skipped 1, partly`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			told := newTold(new(done))
			for i, write := range c.writes {
				parts := strings.SplitN(write, " ", 3)
				h := &spooled{Method: parts[0], Path: "/v1/agents/a/runs/r/" + parts[1], Agent: "a", Run: "r"}
				if h.Method == "PUT" {
					h.Path, h.Query, h.Headers = "/v1/agents/a/checkpoints/01986f0c-3c1e-7a44-9d51-0f6a3c9be001", parts[1], map[string]string{"content-type": "application/json"}
				}
				if err := told.take(h, []byte(parts[2])); err != nil {
					told.skip(fmt.Sprint(i), h, err)
				}
			}
			if got := inWords(told); got != c.want {
				t.Errorf("it tells\n%s, want\n%s", got, c.want)
			}
		})
	}
}

func inWords(t *told) string {
	p := t.plan("a", "r", errors.New("nobody"))
	words := []string{string(p.Verdict)}
	say := func(format string, values ...any) { words = append(words, fmt.Sprintf(format, values...)) }
	if c := p.Checkpoint; c != nil {
		say("state %s %s", c.Kind, c.State)
	}
	for _, s := range p.CompletedSteps {
		say("completed %s (%s) %s", s.Key, s.Name, s.Result)
	}
	for _, s := range p.InterruptedSteps {
		args, _ := s.Args.MarshalJSON()
		say("begun %s (%s) %s", s.Key, s.Name, args)
	}
	for _, o := range p.UncertainOperations {
		say("open %s (%s) %d", o.Key, o.Name, o.Attempt)
	}
	for _, key := range slices.Sorted(maps.Keys(t.done.operations)) {
		say("operation %s", key)
	}
	for _, key := range slices.Sorted(maps.Keys(t.done.steps)) {
		say("step %s %s", key, t.done.steps[key])
	}
	for _, s := range p.Skipped {
		say("skipped %s", s.ID)
	}
	if t.done.partly {
		say("partly")
	}
	if p.ContinuationPrompt != "" {
		say("prompt %s", p.ContinuationPrompt)
	}
	return strings.Join(words, ", ")
}

// TestASpooledSaveIsACheckpoint: what the request of a save says is in the plan.
func TestASpooledSaveIsACheckpoint(t *testing.T) {
	t.Parallel()
	const id = "01986f0c-3c1e-7a44-9d51-0f6a3c9be001"
	told := newTold(new(done))
	must(t, told.take(&spooled{
		Method: "PUT", Path: "/v1/agents/a/checkpoints/" + id, Agent: "a", Run: "r", SHA256: "5e",
		Query:   "kind=routine&run=r&parent=01986f0c-3c1e-7a44-9d51-0f6a3c9be000&step=s+1&label=a%3Db%3Dc&label=d%3D",
		Headers: map[string]string{"Ckpt-Metadata": `{"m":1}`, "ckpt-program": `{"source":"ab","executed":1}`, "Ckpt-Tree": "t1,t2"},
	}, []byte{0xff}))
	p := told.plan("a", "r", errors.New("nobody"))
	c := p.Checkpoint
	if c.ID != id || c.Parent == "" || c.Step != "s 1" || c.Labels["a"] != "b=c" || len(c.Labels) != 2 || string(c.Metadata) != `{"m":1}` || len(c.Trees) != 2 ||
		c.ContentType != "application/octet-stream" || c.Size != 1 || c.SHA256 != "5e" || string(c.State) != "\xff" {
		t.Errorf("it is %+v", c)
	}
	if p.Program == nil || *p.Program != (ckpt.ProgramRest{Executed: 1, Remaining: "b"}) {
		t.Errorf("the program is %+v", p.Program)
	}
}

// TestResultsThatAreTooLarge: a step whose result is not kept is neither listed nor done again.
func TestResultsThatAreTooLarge(t *testing.T) {
	t.Parallel()
	d := &done{held: doneMost - 1}
	told := newTold(d)
	must(t, told.take(&spooled{Method: "POST", Path: "/v1/agents/a/runs/r/steps/s/finish", Agent: "a", Run: "r"}, []byte(`{"result":12}`)))
	p := told.plan("a", "r", errors.New("nobody"))
	if len(p.CompletedSteps) != 0 || p.Verdict != ckpt.VerdictOffline || !strings.Contains(strings.Join(p.Reasons, " "), "too large to keep") {
		t.Errorf("the plan is %+v", p)
	}
	if _, err := d.step("s", errors.New("nobody")); err == nil || !strings.Contains(err.Error(), "was done before") {
		t.Errorf("the step: %v", err)
	}
}

// TestWhatWasJustSentIsNotKnown: the daemon takes a write of a run that starts, and goes away. It is
// not known any more what was done.
func TestWhatWasJustSentIsNotKnown(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	c := &Client{Socket: filepath.Join(dir, "s"), SpoolDir: filepath.Join(dir, "spool"), Deadline: -1, FailOpen: true}
	t.Cleanup(c.Close)
	c.init()
	for _, key := range []string{"a", "b"} {
		must(t, c.spool.add(&client.Request{Agent: "a", Run: "main", Method: "POST", Path: "/v1/agents/a/runs/main/steps",
			Header: map[string]string{"Idempotency-Key": uuid.NewString()}, Body: fmt.Appendf(nil, `{"key":%q,"name":"s","status":"succeeded","result":1}`, key)}))
	}
	sent := 0
	c.spool.send = func(context.Context, *client.Request, ckpt.Time) error {
		if sent++; sent > 1 {
			return errors.New("nobody")
		}
		return nil
	}
	run, err := c.Agent("a").Start(t.Context(), RunOptions{})
	must(t, err)
	if run.Plan.Verdict != ckpt.VerdictOffline || len(run.Plan.CompletedSteps) != 1 {
		t.Errorf("the plan is %+v", run.Plan)
	}
	did := func(context.Context) (int, error) { return 2, nil }
	if got, err := Step(t.Context(), run, "b", did); err != nil || got != 1 {
		t.Errorf("b: %d, %v", got, err)
	}
	if _, err := Step(t.Context(), run, "a", did); err == nil || !strings.Contains(err.Error(), "it is not known") {
		t.Errorf("a: %v", err)
	}
}

// TestASpoolThatCannotBeReadTellsNothing: it is not known what it has. Without any folder, nothing was
// spooled.
func TestASpoolThatCannotBeReadTellsNothing(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	must(t, os.WriteFile(file, nil, 0o600))
	for _, name := range []string{EnvSpool, "XDG_STATE_HOME", "HOME", "LocalAppData"} {
		t.Setenv(name, "")
	}
	for _, dir := range []string{file, ""} {
		c := &Client{Socket: filepath.Join(t.TempDir(), "s"), SpoolDir: dir, Deadline: -1, FailOpen: true, DropWhenFull: true}
		t.Cleanup(c.Close)
		run, err := c.Agent("a").Start(t.Context(), RunOptions{})
		must(t, err)
		if run.Plan.Verdict != ckpt.VerdictOffline || strings.Contains(strings.Join(run.Plan.Reasons, " "), "is not a folder") != (dir != "") {
			t.Errorf("with %q, the plan is %+v", dir, run.Plan)
		}
		if _, err := Step(t.Context(), run, "s", func(context.Context) (int, error) { return 1, nil }); (err == nil) != (dir == "") {
			t.Errorf("with %q, the step: %v", dir, err)
		}
	}
}
