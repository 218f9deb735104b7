package mcpserver_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/jsonschema-go/jsonschema"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/mcpserver"
)

// uses has a valid call of every tool, in an order that works.
var uses = []struct{ tool, arguments string }{
	{"resume_run", `{}`},
	{"save_checkpoint", `{"state":{"goal":"<tea>","n":12345678901234567890},"summary":"water is hot","kind":"routine","labels":{"phase":"boil"}}`},
	{"begin_operation", `{"key":"pour","name":"pour the water"}`},
	{"finish_operation", `{"key":"pour","status":"failed","error":"no cup"}`},
	{"begin_operation", `{"key":"serve","state":{"goal":"tea","cup":1}}`},
	{"finish_operation", `{"key":"serve","status":"succeeded","result":{"cups":1}}`},
	{"report_step", `{"name":"taste","key":"t1","args":{"n":1},"result":"good","duration_ms":5,"input_tokens":1,"output_tokens":2,"cost_usd":0.5,"progress":0.5}`},
	{"report_step", `{"name":"taste","error":"too hot"}`},
	{"list_checkpoints", `{"run":"main","kind":"routine","limit":5}`},
	{"restore_checkpoint", `{"reason":"once more"}`},
	{"drift_status", `{}`},
	{"ask_person", `{"key":"q1","question":"More tea?","choices":["yes","no"],"wait_seconds":0}`},
}

func TestEveryToolDoesWhatItsSchemasSay(t *testing.T) {
	t.Parallel()
	h := newDaemon(t).host("cook")
	listed, err := h.session.ListTools(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	tools, gives := map[string]*mcp.Tool{}, mcpserver.Gives()
	for _, tool := range listed.Tools {
		tools[tool.Name] = tool
		if tool.Title == "" || len(tool.Description) < 80 || tool.Annotations == nil || *tool.Annotations.DestructiveHint {
			t.Errorf("%s is not described well: %+v", tool.Name, tool)
		}
	}
	want := []string{"ask_person", "begin_operation", "drift_status", "finish_operation", "list_checkpoints", "report_step", "restore_checkpoint", "resume_run", "save_checkpoint"}
	if diff := cmp.Diff(want, slices.Sorted(maps.Keys(tools))); diff != "" {
		t.Fatalf("tools: %s", diff)
	}
	for _, name := range []string{"list_checkpoints", "drift_status"} {
		if !tools[name].Annotations.ReadOnlyHint {
			t.Errorf("%s does not say that it only reads", name)
		}
	}
	for _, use := range uses {
		matches(t, use.tool+" takes", tools[use.tool].InputSchema, []byte(use.arguments))
		result, text := h.call(use.tool, use.arguments)
		if result.IsError {
			t.Fatalf("%s %s: %s", use.tool, use.arguments, text)
		}
		structured, err := json.Marshal(result.StructuredContent)
		if err != nil {
			t.Fatal(err)
		}
		matches(t, use.tool+" gives", gives[use.tool], structured)
		matches(t, use.tool+" says", gives[use.tool], []byte(text))
	}
}

// mostListed is the maximum size of the list of all tools in bytes. Every model has the list in its context.
const mostListed = 6500

func TestTheListOfToolsIsSmall(t *testing.T) {
	t.Parallel()
	listed, err := newDaemon(t).host("cook").session.ListTools(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(listed.Tools) // the rest belongs to the protocol, and varies with our version
	if err != nil {
		t.Fatal(err)
	}
	if len(text) > mostListed {
		t.Errorf("the list of tools has %d bytes: at most %d are allowed", len(text), mostListed)
	}
	t.Logf("%d bytes", len(text))
	for _, tool := range listed.Tools {
		if schema, err := json.Marshal(tool.OutputSchema); err != nil || string(schema) != `{"type":"object"}` {
			t.Errorf("%s lists %s as the schema of its answers, error %v", tool.Name, schema, err)
		}
		if open := tool.Annotations.OpenWorldHint; open == nil || *open {
			t.Errorf("%s does not say that it stays on this machine", tool.Name)
		}
		if !strings.Contains(tool.Description, "Use it") && !strings.Contains(tool.Description, "after") {
			t.Errorf("%s does not say when to use it: %s", tool.Name, tool.Description)
		}
	}
}

// TestNothingIsPublic: a cache that several users share must not keep one user's checkpoints.
func TestNothingIsPublic(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	h := d.host("private")
	id := h.done("save_checkpoint", `{"state":{"n":1}}`)["checkpoint"].(map[string]any)["id"].(string)
	for what, ask := range map[string]func() (mcp.CacheableResult, error){
		"resources/list":           func() (mcp.CacheableResult, error) { return h.session.ListResources(t.Context(), nil) },
		"resources/templates/list": func() (mcp.CacheableResult, error) { return h.session.ListResourceTemplates(t.Context(), nil) },
		"resources/read": func() (mcp.CacheableResult, error) {
			return h.session.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: "ckptsidecar://checkpoint/" + id})
		},
		"tools/list":   func() (mcp.CacheableResult, error) { return h.session.ListTools(t.Context(), nil) },
		"prompts/list": func() (mcp.CacheableResult, error) { return h.session.ListPrompts(t.Context(), nil) },
	} {
		result, err := ask()
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		if scope := result.GetCacheScope(); scope != "private" {
			t.Errorf("the answer to %s is %q", what, scope)
		}
	}
}

// matches compares a JSON text with a schema.
func matches(t *testing.T, what string, schema any, text []byte) {
	t.Helper()
	written, err := json.Marshal(schema)
	if err != nil {
		t.Fatal(err)
	}
	var s jsonschema.Schema
	if err := json.Unmarshal(written, &s); err != nil {
		t.Fatal(err)
	}
	resolved, err := s.Resolve(nil)
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	var v any
	if err := json.Unmarshal(text, &v); err != nil {
		t.Fatal(err)
	}
	if err := resolved.Validate(v); err != nil {
		t.Errorf("%s %s: %v", what, text, err)
	}
}

func TestStateComesBackAsItWas(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	h := d.host("exact")
	const state = `{"z":1,"a":12345678901234567890.50,"html":"<b>&</b>","unicode":"é\u00e9"}`
	id := h.done("save_checkpoint", `{"state":`+state+`}`)["checkpoint"].(map[string]any)["id"].(string)
	stored, err := d.client().State(t.Context(), id)
	if err != nil || string(stored) != state {
		t.Errorf("stored is %s, error %v", stored, err)
	}
	if _, text := h.call("restore_checkpoint", `{"reason":"look","checkpoint":"`+id+`"}`); !strings.Contains(text, `"state":`+state) {
		t.Errorf("the state is not in %s", text)
	}
	read, err := h.session.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: "ckptsidecar://checkpoint/" + id})
	if err != nil || read.Contents[0].Text != state || read.Contents[0].MIMEType != "application/json" {
		t.Errorf("the resource is %+v, error %v", read, err)
	}
}

func TestWrongArgumentsAreAnsweredForAModel(t *testing.T) {
	t.Parallel()
	h := newDaemon(t).host("cook")
	for _, test := range []struct {
		tool, arguments string
		want            []string
	}{
		{"save_checkpoint", `{}`, []string{"state is missing", "goal, plan", "Required: state; optional: summary"}},
		{"save_checkpoint", `{"state":"text"}`, []string{"state must be a JSON object"}},
		{"save_checkpoint", `{"state":null}`, []string{"state is missing"}},
		{"save_checkpoint", `{"state":{},"kind":"weekly"}`, []string{`kind is "weekly"`, "one of routine, recovery"}},
		{"save_checkpoint", `{"state":{},"labels":{"a b":"x"}}`, []string{"label name"}},
		{"save_checkpoint", `{"state":{},"run":"../x"}`, []string{"The run name"}},
		{"save_checkpoint", `{"state":{},"summry":"x"}`, []string{`unknown field "summry"`, "optional: summary"}},
		{"save_checkpoint", `{"state":{},"summary":7}`, []string{"expected a string", "summary"}},
		{"list_checkpoints", `{"limit":1000}`, []string{"limit is 1000: say 1 to 100"}},
		{"restore_checkpoint", `{}`, []string{"reason is missing"}},
		{"restore_checkpoint", `{"reason":"r","checkpoint":"7"}`, []string{`"7" is not an id`}},
		{"restore_checkpoint", `{"reason":"r"}`, []string{"cook"}},
		{"begin_operation", `{"name":"x"}`, []string{"key is missing"}},
		{"finish_operation", `{"key":"x"}`, []string{"status is missing"}},
		{"finish_operation", `{"key":"x","status":"done"}`, []string{"one of succeeded, failed"}},
		{"finish_operation", `{"key":"never","status":"succeeded"}`, []string{"never"}},
		{"report_step", `{"key":"x"}`, []string{"name is missing"}},
		{"report_step", `{"name":"x","status":"started","error":"e"}`, []string{"no error yet"}},
		{"report_step", `{"name":"x","duration_ms":"long"}`, []string{"duration_ms"}},
	} {
		h.refused(test.tool, test.arguments, test.want...)
	}
}

func TestErrorsOfTheProtocolAreErrorsOfTheProtocol(t *testing.T) {
	t.Parallel()
	h := newDaemon(t).host("cook")
	h.done("save_checkpoint", `{"state":{}}`)
	for what, call := range map[string]func() error{
		"a tool that deletes": func() error {
			_, err := h.session.CallTool(t.Context(), &mcp.CallToolParams{Name: "delete_checkpoint"})
			return err
		},
		"a checkpoint that is not there": func() error {
			_, err := h.session.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: "ckptsidecar://checkpoint/0197f6a0-0000-7000-8000-000000000001"})
			return err
		},
		"a checkpoint that is none": func() error {
			_, err := h.session.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: "ckptsidecar://checkpoint/7"})
			return err
		},
		"a run that is not there": func() error {
			_, err := h.session.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: "ckptsidecar://latest/nothing"})
			return err
		},
		"a resource of another kind": func() error {
			_, err := h.session.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: "file:///etc/passwd"})
			return err
		},
		"a prompt that is not there": func() error {
			_, err := h.session.GetPrompt(t.Context(), &mcp.GetPromptParams{Name: "nothing"})
			return err
		},
	} {
		var wire *jsonrpc.Error
		if err := call(); !errors.As(err, &wire) || wire.Code != jsonrpc.CodeInvalidParams {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func TestASessionGoesOnWhereAKilledOneWas(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	first := d.host("builder")
	first.done("save_checkpoint", `{"state":{"done":["a"]}}`)
	first.done("begin_operation", `{"key":"deploy","name":"deploy to production"}`)
	first.done("report_step", `{"name":"compile","key":"c1","result":"ok"}`)
	first.done("report_step", `{"name":"test","key":"t1","status":"started","args":{"all":true}}`)
	first.kill()

	second := d.host("builder")
	second.refused("save_checkpoint", `{"state":{}}`, "started in an earlier session", "Call resume_run first")
	asked := second.done("resume_run", `{}`)
	wantText(t, "verdict", asked["verdict"], "ask")
	wantText(t, "message", asked["message"], "deploy to production", "ckptsidecar operation resolve builder deploy it_did|it_did_not|repeat")
	second.refused("save_checkpoint", `{"state":{}}`, "Call resume_run first")

	end := ckpt.OperationResolution{Key: "deploy", Choice: ckpt.ChoiceItDid, Reason: "looked"}
	if _, _, err := d.client().ResolveOperation(t.Context(), ckpt.RunRef{Agent: "builder"}, end); err != nil {
		t.Fatal(err)
	}
	resumed := second.done("resume_run", `{"reason":"looked"}`)
	wantText(t, "verdict", resumed["verdict"], "repair")
	wantText(t, "state", resumed["state"], "done:[a]")
	wantText(t, "completed", resumed["completed_steps"], "c1", "ok")
	wantText(t, "interrupted", resumed["interrupted_steps"], "t1", "all:true")
	wantText(t, "message", resumed["message"], "do not repeat them", "check whether they took effect")
	second.done("save_checkpoint", `{"state":{"done":["a","b"]}}`)
	again := second.done("begin_operation", `{"key":"deploy"}`)
	if again["go_ahead"] != false {
		t.Errorf("the deployment would be done twice: %v", again)
	}
	replayed := second.done("report_step", `{"name":"compile","key":"c1","status":"started"}`)
	if replayed["replayed"] != true || replayed["result"] != "ok" {
		t.Errorf("the step would be done twice: %v", replayed)
	}
}

// TestAnUncertainOperationIsShownWithWhatMayBeDone: one that is idempotent may be begun again; another needs a person, or the
// word of the user that the session goes on without an answer, with a reason. It stays uncertain then.
func TestAnUncertainOperationIsShownWithWhatMayBeDone(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	first := d.host("payer")
	first.done("save_checkpoint", `{"state":{"n":1}}`)
	first.done("begin_operation", `{"key":"safe","name":"set the price","idempotent":true}`)
	first.kill()
	second := d.host("payer")
	resumed := second.done("resume_run", `{}`)
	wantText(t, "verdict", resumed["verdict"], "repair")
	wantText(t, "uncertain", resumed["uncertain_operations"], "key:safe", "idempotent:true", "attempt:1")
	if again := second.done("begin_operation", `{"key":"safe","idempotent":true}`); again["go_ahead"] != true {
		t.Errorf("what is idempotent is not repeated: %v", again)
	}
	second.done("finish_operation", `{"key":"safe","status":"succeeded"}`)
	second.done("begin_operation", `{"key":"pay"}`)
	second.kill()

	third := d.host("payer")
	asked := third.done("resume_run", `{}`)
	wantText(t, "verdict", asked["verdict"], "ask")
	wantText(t, "uncertain", asked["uncertain_operations"], "key:pay", "idempotent:false", "resolve:ckptsidecar operation resolve payer pay it_did|it_did_not|repeat")
	third.refused("resume_run", `{"leave_uncertain":true}`, "reason")
	left := third.done("resume_run", `{"leave_uncertain":true,"reason":"the user refunds it"}`)
	if left["claimed"] != true {
		t.Errorf("the session does not go on: %v", left)
	}
	third.refused("begin_operation", `{"key":"pay"}`, "uncertain", "ckptsidecar operation resolve payer pay")
}

func TestAStepThatWasStartedIsEndedUnderItsKey(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	h := d.host("stepper")
	h.done("report_step", `{"name":"build","key":"b","status":"started","args":{"all":true}}`)
	h.done("report_step", `{"name":"build","key":"b","result":"ok"}`)
	page, err := d.client().Steps(t.Context(), ckpt.RunRef{Agent: "stepper"}, ckpt.ListFilter{})
	if err != nil || len(page.Steps) != 1 {
		t.Fatalf("steps: %+v, error %v", page, err)
	}
	if s := page.Steps[0]; s.Status != ckpt.StepSucceeded || s.Attempt != 1 || string(s.Args) != `{"all":true}` || string(s.Result) != `"ok"` {
		t.Errorf("the step is %+v", s)
	}
}

func TestAPlanFitsIntoWhatAModelCanRead(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	h := d.host("long")
	h.done("save_checkpoint", `{"state":{}}`)
	for i := range 120 {
		result := `"short"`
		if i == 119 {
			result = `"` + strings.Repeat("x", 20_000) + `"`
		}
		h.done("report_step", fmt.Sprintf(`{"name":"page","key":"p%d","args":%d,"result":%s}`, i, i, result))
	}
	_, text := h.call("resume_run", `{"look_only":true}`)
	if len(text) > 30_000 || !strings.Contains(text, "Of 120 completed steps the newest 100 are listed") || !strings.Contains(text, "20002 bytes, not shown") || strings.Contains(text, `"p19"`) || !strings.Contains(text, `"p20"`) {
		t.Errorf("%d bytes: %.600s", len(text), text)
	}
	if again := h.done("report_step", `{"name":"page","key":"p119","status":"started"}`); len(again["result"].(string)) != 20_000 {
		t.Errorf("the result that was not shown: %.100v", again)
	}
}

// TestCallsAtTheSameTime: a host may send calls at the same time, and none of them fences another.
func TestCallsAtTheSameTime(t *testing.T) {
	t.Parallel()
	h := newDaemon(t).host("busy")
	var group sync.WaitGroup
	for i := range 20 {
		group.Go(func() {
			name, arguments := "save_checkpoint", fmt.Sprintf(`{"state":{"n":%d}}`, i)
			if i%5 == 0 {
				name, arguments = "resume_run", `{}`
			}
			if result, text := h.call(name, arguments); result.IsError {
				t.Errorf("%s: %s", name, text)
			}
		})
	}
	group.Wait()
}

func TestTwoServersDoNotShareARun(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	first, second := d.host("twin"), d.host("twin")
	first.done("save_checkpoint", `{"state":{"by":1}}`)
	second.refused("save_checkpoint", `{"state":{"by":2}}`, "another process", "argument run", "force true")
	wantText(t, "verdict", second.done("resume_run", `{}`)["verdict"], "unsafe")
	second.done("save_checkpoint", `{"state":{"by":2},"run":"mine"}`)
	if taken := second.done("resume_run", `{"force":true,"reason":"the other one hangs"}`); taken["claimed"] != true {
		t.Fatalf("not taken over: %v", taken)
	}
	first.refused("save_checkpoint", `{"state":{"by":1}}`, "run main was taken over", "Stop working on run main")
	second.done("save_checkpoint", `{"state":{"by":2}}`)
}

// TestALeaseThatIsOverTakesNoRunAway: while the engine of the fleet is away, no step begins, but the run stays the
// server's, and saves go on.
func TestALeaseThatIsOverTakesNoRunAway(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	h := d.host("cook")
	h.done("save_checkpoint", `{"state":{"n":1}}`)
	if _, err := d.client().SetOwnPolicy(t.Context(), "cook", ckpt.JSON(`{"takeover":"auto"}`)); err != nil {
		t.Fatal(err)
	}
	d.stop()
	engine := filepath.Join(d.dir, "engine")
	if err := os.WriteFile(engine, []byte("postgres://nobody@127.0.0.1:1/none\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	d.flags = []string{"--set", "fleet.engine_file=" + engine}
	d.start()
	h.refused("begin_operation", `{"key":"bake"}`, "lease in the fleet is over", "Run main is still yours", "when the lease is held")
	saved := h.done("save_checkpoint", `{"state":{"n":2}}`)
	if saved["checkpoint"].(map[string]any)["seq"] != 2.0 {
		t.Errorf("saved: %v", saved)
	}
	d.stop()
	d.flags = nil
	d.start()
	h.done("begin_operation", `{"key":"bake"}`)
}

// TestAConflictIsAboutOneCall: only the end of the run ends the server's hold on it.
func TestAConflictIsAboutOneCall(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	h := d.host("cook")
	h.done("save_checkpoint", `{"state":{"n":1}}`)
	h.done("begin_operation", `{"key":"bake"}`)
	h.done("begin_operation", `{"key":"serve"}`)
	h.done("finish_operation", `{"key":"serve","status":"succeeded"}`)
	h.refused("finish_operation", `{"key":"serve","status":"failed"}`, "already succeeded")
	h.done("save_checkpoint", `{"state":{"n":2}}`)
	h.done("finish_operation", `{"key":"bake","status":"succeeded"}`)
	if _, _, err := d.client().EndRun(t.Context(), ckpt.RunRef{Agent: "cook", Run: "main"}, ckpt.EndRequest{Status: ckpt.RunCompleted}); err != nil {
		t.Fatal(err)
	}
	h.refused("save_checkpoint", `{"state":{"n":3}}`, "has ended")
	h.done("save_checkpoint", `{"state":{"n":3}}`)
}

func TestAHostThatHangsUpSuspendsItsRun(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	h := d.host("guest")
	h.done("save_checkpoint", `{"state":{}}`)
	if err := h.session.Close(); err != nil {
		t.Error(err)
	}
	run, err := d.client().Run(t.Context(), ckpt.RunRef{Agent: "guest"})
	if err != nil || run.Status != ckpt.RunSuspended {
		t.Errorf("the run is %+v, error %v", run, err)
	}
	wantText(t, "verdict", d.host("guest").done("resume_run", `{}`)["verdict"], "resume")
}

func TestADaemonMayBeAwayForAWhile(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	h := d.host("patient")
	h.done("save_checkpoint", `{"state":{"n":1}}`)
	d.stop()
	for _, use := range uses {
		h.refused(use.tool, use.arguments, "daemon cannot be reached", "ckptsidecar serve", "works again")
	}
	if _, err := h.session.ListResources(t.Context(), nil); err == nil || !strings.Contains(err.Error(), "ckptsidecar serve") {
		t.Errorf("the list of resources: %v", err)
	}
	d.start()
	if saved := h.done("save_checkpoint", `{"state":{"n":2}}`); saved["checkpoint"].(map[string]any)["seq"] != 2.0 {
		t.Errorf("after the daemon came back: %v", saved)
	}
}

func TestLoopsAreToldInTheAnswer(t *testing.T) {
	t.Parallel()
	h := newDaemon(t).host("looper")
	clean := h.done("save_checkpoint", `{"state":{"n":1}}`)["checkpoint"].(map[string]any)["id"].(string)
	var said []string
	for range 5 {
		said = append(said, fmt.Sprint(h.done("report_step", `{"name":"search","args":{"q":"x"},"result":"nothing"}`)["message"]))
	}
	for i, want := range []string{"", "", "", "Drift, warn: ", "Drift, critical: "} {
		if told := strings.Contains(said[i], "Drift"); told != (want != "") || !strings.Contains(said[i], want) {
			t.Errorf("step %d is answered %q, want %q", i+1, said[i], want)
		}
	}
	wantText(t, "the last answer", said[4], "restore_checkpoint with checkpoint "+clean)
	status := h.done("drift_status", `{}`)
	if status["verdict"] != "critical" || status["go_back_to"] != clean || status["recovery"] == nil {
		t.Errorf("drift_status: %v", status)
	}
	h.done("restore_checkpoint", `{"reason":"went in circles","checkpoint":"`+clean+`"}`)
	wantText(t, "the verdict afterwards", h.done("drift_status", `{}`)["verdict"], "none")
}

// TestALostKeyIsToldUntilItIsBack: the answer to a save names the checkpoint from before a fault in the state, also for
// a warning. When the key is back, nothing is said. What looks like a secret is no drift, and has a list of its own.
func TestALostKeyIsToldUntilItIsBack(t *testing.T) {
	t.Parallel()
	h := newDaemon(t).host("keeper")
	whole := ""
	for n := range 4 {
		whole = h.done("save_checkpoint", fmt.Sprintf(`{"state":{"n":%d,"plan":"p"}}`, n))["checkpoint"].(map[string]any)["id"].(string)
	}
	wantText(t, "the answer to a lost key", h.done("save_checkpoint", `{"state":{"n":5}}`)["message"], "Drift, warn: ", "restore_checkpoint with checkpoint "+whole)
	if status := h.done("drift_status", `{}`); status["verdict"] != "warn" || status["go_back_to"] != whole {
		t.Errorf("drift_status: %v", status)
	}
	for _, state := range []string{`{"n":6,"plan":"q"}`, `{"n":7,"plan":"AKIAQ7ZPMX3WVN5KTR2D"}`} {
		saved := h.done("save_checkpoint", `{"state":`+state+`}`)
		if strings.Contains(fmt.Sprint(saved["message"]), "Drift") {
			t.Errorf("%s is answered %v", state, saved["message"])
		}
	}
	status := h.done("drift_status", `{}`)
	if status["verdict"] != "none" || status["go_back_to"] != nil || !strings.Contains(fmt.Sprint(status["secrets"]), "rule:secret") {
		t.Errorf("drift_status: %v", status)
	}
}

// TestTurnsAndNegativeAnswers: a host that requests the same thing eight times in one answer, and a search that
// finds nothing, get no drift warning.
func TestTurnsAndNegativeAnswers(t *testing.T) {
	t.Parallel()
	h := newDaemon(t).host("turns")
	for range 8 {
		said := h.done("report_step", `{"name":"search","args":{"q":"x"},"result":"nothing","turn":"msg_1"}`)
		if strings.Contains(fmt.Sprint(said["message"]), "Drift") {
			t.Fatalf("equal calls of one turn: %v", said)
		}
	}
	for i := range 8 {
		said := h.done("report_step", fmt.Sprintf(`{"name":"grep","args":{"q":%d},"error":"exit status 1","result":"3c3","outcome":"negative"}`, i))
		if strings.Contains(fmt.Sprint(said["message"]), "Drift") {
			t.Fatalf("a negative answer: %v", said)
		}
	}
	h.refused("report_step", `{"name":"grep","outcome":"positive"}`, "must be one of negative")
}

func TestALargeStateIsReadAsAResource(t *testing.T) {
	t.Parallel()
	h := newDaemon(t).host("big")
	large := `{"text":"` + strings.Repeat("abcdefgh", 40_000) + `"}`
	h.done("save_checkpoint", `{"state":`+large+`}`)
	restored := h.done("restore_checkpoint", `{"reason":"look"}`)
	uri, _ := restored["state_resource"].(string)
	if restored["state"] != nil || uri == "" {
		t.Fatalf("the state is shown whole, or nowhere: %.200v", restored)
	}
	wantText(t, "message", restored["message"], uri, fmt.Sprint(len(large)))
	read, err := h.session.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: uri})
	if err != nil || read.Contents[0].Text != large {
		t.Errorf("the resource is another one, error %v", err)
	}
}

func TestResourcesAndThePrompt(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	h := d.host("librarian")
	if list, err := h.session.ListResources(t.Context(), nil); err != nil || len(list.Resources) != 0 {
		t.Errorf("before anything was saved: %+v, error %v", list, err)
	}
	h.done("save_checkpoint", `{"state":{"n":1},"summary":"begun"}`)
	h.done("save_checkpoint", `{"state":{"n":2},"summary":"on it"}`)
	d.host("other").done("save_checkpoint", `{"state":{"secret":1}}`)

	list, err := h.session.ListResources(t.Context(), nil)
	if err != nil || len(list.Resources) != 2 {
		t.Fatalf("resources: %+v, error %v", list, err)
	}
	wantText(t, "the newest", list.Resources[0].Description, "on it")
	templates, err := h.session.ListResourceTemplates(t.Context(), nil)
	if err != nil || len(templates.ResourceTemplates) != 2 {
		t.Errorf("templates: %+v, error %v", templates, err)
	}
	read, err := h.session.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: "ckptsidecar://latest/main"})
	if err != nil || read.Contents[0].Text != `{"n":2}` {
		t.Errorf("latest: %+v, error %v", read, err)
	}
	others, err := d.client().Latest(t.Context(), ckpt.CheckpointFilter{Agent: "other"}, false)
	if err != nil {
		t.Fatal(err)
	}
	if read, err := h.session.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: "ckptsidecar://checkpoint/" + others.ID}); err == nil {
		t.Errorf("another agent's checkpoint is shown: %+v", read)
	}
	h.kill()
	later := d.host("librarian")
	prompt, err := later.session.GetPrompt(t.Context(), &mcp.GetPromptParams{Name: "resume", Arguments: map[string]string{"run": "main"}})
	if err != nil {
		t.Fatal(err)
	}
	wantText(t, "the prompt", prompt.Messages[0].Content.(*mcp.TextContent).Text, "First call resume_run", `"state":{"n":2}`)
	run, err := d.client().Run(t.Context(), ckpt.RunRef{Agent: "librarian"})
	if err != nil || run.Epoch != 1 || time.Since(run.StartedAt.Time) > time.Hour {
		t.Errorf("the prompt has claimed the run: %+v, error %v", run, err)
	}
}

func TestTheDocumentNamesEveryTool(t *testing.T) {
	text, err := os.ReadFile("../../docs/MCP.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, use := range uses {
		if !strings.Contains(string(text), "| `"+use.tool+"` |") {
			t.Errorf("docs/MCP.md does not describe %s", use.tool)
		}
	}
}

// TestAskingAPerson: a question of a model is answered while it waits, and also if the daemon was killed meanwhile
// and another server asks again.
func TestAskingAPerson(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	const question = `{"key":"deploy","question":"Deploy?","choices":["approve","reject"]}`
	h := d.host("asker")
	asked := h.done("ask_person", question)
	wantText(t, "status", asked["status"], "open")
	wantText(t, "message", asked["message"], "ckptsidecar prompts answer "+asked["prompt"].(string))
	d.stop()
	d.start()
	answered := make(chan map[string]any)
	go func() {
		answered <- h.done("ask_person", strings.Replace(question, `{`, `{"wait_seconds":50,`, 1))
	}()
	h2 := d.client()
	if _, _, err := h2.AnswerPrompt(t.Context(), ckpt.PromptAnswer{ID: asked["prompt"].(string), Choice: "approve", Data: ckpt.JSON(`{"env":"prod"}`)}); err != nil {
		t.Fatal(err)
	}
	got := <-answered
	wantText(t, "choice", got["choice"], "approve")
	if data, _ := got["data"].(map[string]any); data["env"] != "prod" {
		t.Errorf("the data is %v", got["data"])
	}
	wantText(t, "asked once more", h.done("ask_person", question)["choice"], "approve")
}
