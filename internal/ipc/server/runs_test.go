package server

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/expect"
	"github.com/ckptsidecar/ckptsidecar/internal/ipc"
	"github.com/ckptsidecar/ckptsidecar/internal/ipc/client"
	"github.com/ckptsidecar/ckptsidecar/internal/jsontext"
)

func newRunWorld(t *testing.T, change ...func(*Options)) (*world, *fakeRuns) {
	t.Helper()
	runs := &fakeRuns{
		run:  filled[ckpt.Run](t),
		step: filled[ckpt.Step](t),
		op:   filled[ckpt.Operation](t),
		plan: ckpt.Plan{
			Verdict: ckpt.VerdictRepair, Reasons: []string{"a <b>"}, Agent: "a", Run: "r", Epoch: 7, Attempt: 2, Claimed: true,
			CompletedSteps:      []ckpt.CompletedStep{filled[ckpt.CompletedStep](t)},
			InterruptedSteps:    []ckpt.InterruptedStep{{Key: "k", Args: ckpt.JSON("7"), SyntheticResult: filled[ckpt.SyntheticResult](t)}},
			UncertainOperations: []ckpt.Operation{filled[ckpt.Operation](t)},
			Skipped:             []ckpt.Skipped{filled[ckpt.Skipped](t)},
			EventsAfter:         9, Program: &ckpt.ProgramRest{Executed: 3, Remaining: "rest"}, ContinuationPrompt: "go on", AccumulatedMS: 5,
			ExternalSession: "s", MemoryDiff: ckpt.JSON("[]"), Prompt: new(filled[ckpt.Prompt](t)),
		},
		ended: ckpt.OperationEnded{Operation: filled[ckpt.Operation](t), Released: []string{id1}},
		asked: filled[ckpt.Prompt](t),

		report: filled[ckpt.DriftReport](t), posted: filled[ckpt.PostedFinding](t), dismissed: filled[ckpt.DismissedFinding](t),
	}
	w := newWorld(t, append([]func(*Options){func(o *Options) { o.Store = runs.in(o.Store) }}, change...)...)
	return w, runs
}

// filled returns a T in which every transmitted field has a different value, so
// that a field that gets lost on the way is noticed.
func filled[T any](t testing.TB) T {
	t.Helper()
	var v T
	fill(t, reflect.ValueOf(&v).Elem())
	return v
}

func fill(t testing.TB, v reflect.Value) {
	t.Helper()
	for i := range v.NumField() {
		f, field := v.Field(i), v.Type().Field(i)
		text := "<" + field.Name + "> ü"
		switch p := f.Addr().Interface().(type) {
		case *ckpt.Time:
			*p = ckpt.At(time.UnixMilli(1700000000123 + int64(i)))
			continue
		case *ckpt.JSON:
			*p = ckpt.JSON(`{"` + field.Name + `":[1.50,"<&>"]}`)
			continue
		case *ckpt.Labels:
			*p = ckpt.Labels{"k": field.Name}
			continue
		}
		if field.Anonymous {
			fill(t, f)
			continue
		}
		if field.Tag.Get("json") == "-" {
			continue
		}
		if f.Kind() == reflect.Pointer {
			f.Set(reflect.New(f.Type().Elem()))
			f = f.Elem()
		}
		switch f.Kind() {
		case reflect.String:
			f.SetString(text)
		case reflect.Int, reflect.Int64:
			f.SetInt(int64(time.Second) * int64(i+1))
		case reflect.Float64:
			f.SetFloat(float64(i) + 0.25)
		case reflect.Bool:
			f.SetBool(true)
		case reflect.Struct:
			fill(t, f)
		case reflect.Slice:
			f.Set(reflect.MakeSlice(f.Type(), 1, 1))
			if f.Index(0).Kind() == reflect.Struct {
				fill(t, f.Index(0))
			}
		default:
			t.Fatalf("the field %s is new and of a new type: fill it", field.Name)
		}
	}
}

var ref = ckpt.RunRef{Agent: "a", Run: "r:1@x+y"}

func same(t *testing.T, what string, got, want any) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s, wanted (-) and got (+):\n%s", what, diff)
	}
}

// TestCallsOfRunsTravelWhole: each call passes to the store what it was given,
// and returns to its caller what the store returned, field by field.
func TestCallsOfRunsTravelWhole(t *testing.T) {
	w, runs := newRunWorld(t)
	ctx, c := t.Context(), w.client
	runs.replayed = true
	ck := fullCheckpoint(t)
	ck.ContentType, ck.State = ckpt.ContentTypeJSON, []byte(exact)
	runs.plan.Checkpoint, runs.ended.Restore = &ck, &ck

	tell := func(method string, replayed bool, err error, answer, answered, want any) {
		t.Helper()
		expect.OK(t, err)
		name, at, got := runs.called()
		expect.Equal(t, "method", name, method)
		expect.Equal(t, method+" replayed", replayed, true)
		same(t, "the answer to "+method, answer, answered)
		same(t, "the request of "+method, got, want)
		if slices.Contains([]string{"StartRun", "Runs", "Resume", "Prompts", "AnswerPrompt", "Drift", "Finding", "PostFinding", "Dismiss"}, method) {
			return
		}
		expect.Equal(t, method+" names the run", at, ref)
	}

	start := filled[ckpt.RunRequest](t)
	start.Agent, start.IdempotencyKey = "a", "k1"
	run, replayed, err := c.StartRun(ctx, start)
	tell("StartRun", replayed, err, run, &runs.run, start)

	run, err = c.Run(ctx, ref)
	tell("Run", true, err, run, &runs.run, nil)

	runFilter := ckpt.RunFilter{Agent: "a", Status: ckpt.RunTimedOut, Before: "b&=", Limit: 7}
	page, err := c.Runs(ctx, runFilter)
	tell("Runs", true, err, page, &ckpt.RunPage{Runs: []ckpt.Run{runs.run}, Next: "more"}, runFilter)

	beat := filled[ckpt.Heartbeat](t)
	run, err = c.Beat(ctx, ref, beat)
	tell("Beat", true, err, run, &runs.run, beat)

	end := filled[ckpt.EndRequest](t)
	end.IdempotencyKey, end.Result, end.State = "k2", ckpt.JSON(exact), ckpt.JSON(exact)
	run, replayed, err = c.EndRun(ctx, ref, end)
	tell("EndRun", replayed, err, run, &runs.run, end)

	resume := filled[ckpt.ResumeRequest](t)
	resume.Agent, resume.Run, resume.IdempotencyKey = ref.Agent, ref.Run, "k3"
	resume.Standby, resume.Claimed = false, nil // without a fleet a standby is refused, and only the daemon sets Claimed
	plan, replayed, err := c.Resume(ctx, resume)
	tell("Resume", replayed, err, plan, &runs.plan, resume)

	step := filled[ckpt.StepRequest](t)
	step.IdempotencyKey, step.Args, step.Result = "k4", ckpt.JSON(exact), ckpt.JSON(exact)
	did, replayed, err := c.BeginStep(ctx, ref, step)
	tell("BeginStep", replayed, err, did, &runs.step, step)

	did, replayed, err = c.FinishStep(ctx, ref, step)
	step.Name, step.Args, step.Call = "", nil, false
	tell("FinishStep", replayed, err, did, &runs.step, step)

	filter := ckpt.ListFilter{Status: "failed", Before: "b", Limit: 1000}
	steps, err := c.Steps(ctx, ref, filter)
	tell("Steps", true, err, steps, &ckpt.StepPage{Steps: []ckpt.Step{runs.step}, Next: "more"}, filter)

	begin := filled[ckpt.OperationRequest](t)
	begin.IdempotencyKey, begin.State = "k5", ckpt.JSON(exact)
	o, replayed, err := c.BeginOperation(ctx, ref, begin)
	tell("BeginOperation", replayed, err, o, &runs.op, begin)

	for _, status := range []ckpt.OperationStatus{ckpt.OperationSucceeded, ckpt.OperationFailed, ckpt.OperationUncertain} {
		ending := filled[ckpt.OperationEnd](t)
		ending.Key, ending.Status, ending.IdempotencyKey, ending.Result = "k/ü ?%", status, "k6", ckpt.JSON(exact)
		ended, replayed, err := c.EndOperation(ctx, ref, ending)
		tell("EndOperation", replayed, err, ended, &runs.ended, ending)
	}
	resolution := filled[ckpt.OperationResolution](t)
	resolution.Key, resolution.Choice, resolution.IdempotencyKey, resolution.Result = "k/ü ?%", ckpt.ChoiceItDid, "k6", ckpt.JSON(exact)
	resolved, replayed, err := c.ResolveOperation(ctx, ref, resolution)
	tell("ResolveOperation", replayed, err, resolved, &runs.ended, resolution)

	operations, err := c.Operations(ctx, ref, filter)
	tell("Operations", true, err, operations, &ckpt.OperationPage{Operations: []ckpt.Operation{runs.op}, Next: "more"}, filter)

	events := []ckpt.NewEvent{{Type: "a <b>", Payload: ckpt.JSON(exact)}, {Type: "bare"}}
	appended, replayed, err := c.Append(ctx, ref, events, "k7")
	tell("Append", replayed, err, appended, &ckpt.Appended{First: 1, Last: 2}, events)
	expect.Equal(t, "key of the events", runs.key, "k7")

	read, err := c.Events(ctx, ref, 1, 3)
	tell("Events", true, err, read, &ckpt.EventPage{Events: []ckpt.Event{{Seq: 2, Type: "bare", Payload: ckpt.JSON("null")}}}, [2]int64{1, 3})

	prompts := ckpt.PromptFilter{Open: true, Before: "x", Limit: 2}
	asked, err := c.Prompts(ctx, prompts)
	tell("Prompts", true, err, asked, &ckpt.PromptPage{Prompts: []ckpt.Prompt{runs.asked}, Next: "more"}, prompts)

	answer := ckpt.PromptAnswer{ID: id1, Choice: ckpt.ChoiceAbandon, Reason: "so", IdempotencyKey: "k8"}
	p, replayed, err := c.AnswerPrompt(ctx, answer)
	tell("AnswerPrompt", replayed, err, p, &runs.asked, answer)

	driftFilter := ckpt.DriftFilter{Agent: "a", Run: "r", All: true, Line: true, Before: "b", Limit: 3}
	report, err := c.Drift(ctx, driftFilter)
	tell("Drift", true, err, report, &runs.report, driftFilter)

	finding, err := c.Finding(ctx, id1)
	tell("Finding", true, err, finding, &runs.posted.Finding, id1)

	post := filled[ckpt.FindingRequest](t)
	post.Run, post.Rule, post.Severity, post.Evidence, post.IdempotencyKey = "r", "mine", ckpt.SeverityCritical, ckpt.JSON(exact), "k9"
	posted, replayed, err := c.PostFinding(ctx, "a", post)
	tell("PostFinding", replayed, err, posted, &runs.posted, post)

	dismiss := ckpt.DismissRequest{ID: id1, Reason: "so", IdempotencyKey: "k10"}
	dismissed, replayed, err := c.Dismiss(ctx, dismiss)
	tell("Dismiss", replayed, err, dismissed, &runs.dismissed, dismiss)
}

// exact is JSON that no encoder produces.
const exact = `{ "b" : 1.500e+3 ,	"a":"<\u00e9é&\/>", "n":12345678901234567890.0 }`

func TestTheEpochOfTheRefIsThatOfTheWrite(t *testing.T) {
	w, runs := newRunWorld(t)
	ctx, c := t.Context(), w.client
	seven, eight := int64(7), int64(8)
	at := ckpt.RunRef{Agent: "a", Epoch: &seven}
	epoch := func(what string, err error, want int64) {
		t.Helper()
		expect.OK(t, err)
		_, gotRef, got := runs.called()
		if what == "Append" {
			expect.Equal(t, what, *gotRef.Epoch, want)
			return
		}
		expect.Equal(t, what, *reflect.ValueOf(got).FieldByName("Epoch").Interface().(*int64), want)
		expect.Equal(t, "run", gotRef.Run, ckpt.MainRun)
	}
	_, err := c.Beat(ctx, at, ckpt.Heartbeat{})
	epoch("Beat", err, 7)
	_, err = c.Beat(ctx, at, ckpt.Heartbeat{Epoch: &eight})
	epoch("Beat", err, 8)
	_, _, err = c.EndRun(ctx, at, ckpt.EndRequest{Status: ckpt.RunCompleted})
	epoch("EndRun", err, 7)
	_, _, err = c.BeginStep(ctx, at, ckpt.StepRequest{Key: "k", Name: "n"})
	epoch("BeginStep", err, 7)
	_, _, err = c.FinishStep(ctx, at, ckpt.StepRequest{Key: "k"})
	epoch("FinishStep", err, 7)
	_, _, err = c.BeginOperation(ctx, at, ckpt.OperationRequest{Key: "k", Name: "n"})
	epoch("BeginOperation", err, 7)
	_, _, err = c.EndOperation(ctx, at, ckpt.OperationEnd{Key: "k", Status: ckpt.OperationFailed})
	epoch("EndOperation", err, 7)
	_, _, err = c.Append(ctx, at, []ckpt.NewEvent{{Type: "t"}}, "")
	epoch("Append", err, 7)
	if runs.key == "" {
		t.Error("events without a key of their own were sent without any")
	}
}

const runPathText = "/v1/agents/a/runs/r"

// TestCallsOfRunsOnTheWire checks the wire as curl users see it: methods,
// paths, statuses, bodies.
func TestCallsOfRunsOnTheWire(t *testing.T) {
	w, runs := newRunWorld(t)
	for _, tc := range []struct {
		method, path, body string
		status             int
		called             string
	}{
		{"POST", "/v1/agents/a/runs", ``, 201, "StartRun"},
		{"POST", "/v1/agents/a/runs", `{"run":"r","heartbeat_timeout":"30s","progress_timeout":"1m","labels":{"a":"b"}}`, 201, "StartRun"},
		{"GET", "/v1/runs?status=running&agent=a&before=x&limit=3", ``, 200, "Runs"},
		{"GET", "/v1/agents/a/runs?status=running&before=x&limit=3", ``, 200, "Runs"},
		{"GET", runPathText, ``, 200, "Run"},
		{"HEAD", runPathText, ``, 200, "Run"},
		{"POST", runPathText + "/heartbeat", ``, 200, "Beat"},
		{"POST", runPathText + "/heartbeat", `{"epoch":1,"progress":0.5}`, 200, "Beat"},
		{"POST", runPathText + "/end", `{"status":"completed","result":null,"state":null}`, 200, "EndRun"},
		{"POST", runPathText + "/resume", ``, 200, "Resume"},
		{"POST", runPathText + "/resume", `{"dry_run":true,"force":false,"pid":4,"heartbeat_timeout":null,"reason":"x"}`, 200, "Resume"},
		{"POST", runPathText + "/steps", `{"key":"k","name":"n","args":[1]}`, 201, "BeginStep"},
		{"POST", runPathText + "/steps/k/finish", ``, 200, "FinishStep"},
		{"POST", runPathText + "/steps/k/finish", `{"status":"failed","error":"e","duration_ms":3}`, 200, "FinishStep"},
		{"GET", runPathText + "/steps?status=failed&before=x&limit=3", ``, 200, "Steps"},
		{"POST", runPathText + "/operations", `{"key":"k","name":"n","state":{"a":1}}`, 201, "BeginOperation"},
		{"POST", runPathText + "/operations/k/succeed", ``, 200, "EndOperation"},
		{"POST", runPathText + "/operations/k/fail", `{"error":"e","status":"failed"}`, 200, "EndOperation"},
		{"POST", runPathText + "/operations/k/doubt", `{"error":"e"}`, 200, "EndOperation"},
		{"POST", runPathText + "/operations/k/resolve", `{"choice":"it_did_not","reason":"asked the bank"}`, 200, "ResolveOperation"},
		{"GET", runPathText + "/operations?status=open&before=x&limit=3", ``, 200, "Operations"},
		{"POST", runPathText + "/events?epoch=3", `[{"type":"t","payload":{"a":1}},{"type":"u"}]`, 201, "Append"},
		{"GET", runPathText + "/events?after=1&limit=3", ``, 200, "Events"},
		{"GET", runPathText + "/events?follow=false", ``, 200, "Events"},
		{"GET", "/v1/prompts?open=true&before=x&limit=3", ``, 200, "Prompts"},
		{"POST", "/v1/prompts/" + id1 + "/answer", `{"choice":"resume","reason":"x"}`, 200, "AnswerPrompt"},
	} {
		runs.method = ""
		r := w.send(tc.method, tc.path, tc.body)
		name := tc.method + " " + tc.path
		expect.Equal(t, name, r.status, tc.status)
		method, _, _ := runs.called()
		expect.Equal(t, name, method, tc.called)
		expect.Equal(t, name+" type", r.header.Get("Content-Type"), ckpt.ContentTypeJSON)
		if tc.method != "HEAD" {
			expect.OK(t, jsontext.Check([]byte(r.body)))
		}
	}
	expect.Equal(t, "events", w.send("GET", runPathText+"/events?limit=1", "").body,
		`{"events":[{"seq":1,"at":null,"type":"t","payload":{"a":1}}],"next":1}`+"\n")
}

// TestNullIsNothing: null means "not there", because many agents are written in
// languages that send it.
func TestNullIsNothing(t *testing.T) {
	w, runs := newRunWorld(t)
	w.send("POST", runPathText+"/steps", `{"key":"k","name":"n","epoch":null,"args":null,"status":"started","result":null,"error":null,"progress":null}`)
	_, _, got := runs.called()
	same(t, "step", got, ckpt.StepRequest{Key: "k", Name: "n", Status: ckpt.StepStarted})
	w.send("POST", runPathText+"/operations", `{"key":"k","name":"n","epoch":null,"state":null,"labels":null}`)
	_, _, got = runs.called()
	same(t, "operation", got, ckpt.OperationRequest{Key: "k", Name: "n"})
	w.send("POST", runPathText+"/operations/k/succeed", `{"epoch":null,"status":null,"result":null,"error":null}`)
	_, _, got = runs.called()
	same(t, "end", got, ckpt.OperationEnd{Key: "k", Status: ckpt.OperationSucceeded})
	w.send("POST", runPathText+"/end", `{"epoch":null,"status":"failed","continuation_prompt":null,"error":null,"result":null,"state":null}`)
	_, _, got = runs.called()
	same(t, "end of the run", got, ckpt.EndRequest{Status: ckpt.RunFailed})
}

func TestKeysInPathsAreAnyText(t *testing.T) {
	w, runs := newRunWorld(t)
	for _, key := range []string{"k", "a/b", "/", "a//b/", ".", "..", "../..", "%2F", "a b+c", "?x=1#y", "ü", "\u2028", "finish", strings.Repeat("/", 512)} {
		_, _, err := w.client.FinishStep(t.Context(), ref, ckpt.StepRequest{Key: key, Status: ckpt.StepSucceeded})
		expect.OK(t, err)
		_, _, got := runs.called()
		expect.Equal(t, "key", got.(ckpt.StepRequest).Key, key)
		_, _, err = w.client.EndOperation(t.Context(), ref, ckpt.OperationEnd{Key: key, Status: ckpt.OperationFailed})
		expect.OK(t, err)
		_, at, got := runs.called()
		expect.Equal(t, "key", got.(ckpt.OperationEnd).Key, key)
		expect.Equal(t, "run", at, ref)
	}
	r := w.send("POST", runPathText+"/steps/a%2Fb%2f..%2fc/finish", "")
	expect.Equal(t, "status", r.status, 200)
	_, _, got := runs.called()
	expect.Equal(t, "escaped by hand", got.(ckpt.StepRequest).Key, "a/b/../c")
	for _, path := range []string{"/steps/a/b/finish", "/steps//finish", "/steps/../finish", "/steps/k/finish/", "/operations/k/other", "/operations/k"} {
		expect.Equal(t, path, w.send("POST", runPathText+path, "{}").problem(t).Code, ckpt.CodeNotFound)
	}
	for _, path := range []string{"/v1/agents/a/runs/%2E%2E", "/v1/agents/a/runs/a%2Fb", "/v1/agents/a%2Fb/runs/r", "/v1/agents/a/runs/%20/steps"} {
		expect.Equal(t, path, w.send("GET", path, "").problem(t).Code, ckpt.CodeInvalid)
	}
}

func TestClientChecksNamesOfRunsItself(t *testing.T) {
	c, ctx := client.Client{Socket: "/nowhere"}, t.Context()
	bad := ckpt.RunRef{Agent: "a", Run: "../x"}
	var errs []error
	add := func(_ any, _ bool, err error) { errs = append(errs, err) }
	add1 := func(_ any, err error) { errs = append(errs, err) }
	add(c.StartRun(ctx, ckpt.RunRequest{Agent: "../x"}))
	add1(c.Run(ctx, bad))
	add1(c.Beat(ctx, bad, ckpt.Heartbeat{}))
	add(c.EndRun(ctx, bad, ckpt.EndRequest{}))
	add(c.EndRun(ctx, ref, ckpt.EndRequest{State: ckpt.JSON(`1,"status":"failed"`)}))
	add(c.Resume(ctx, ckpt.ResumeRequest{Agent: "a", Run: "../x"}))
	add(c.BeginStep(ctx, bad, ckpt.StepRequest{}))
	add(c.BeginStep(ctx, ref, ckpt.StepRequest{Args: ckpt.JSON("{")}))
	add(c.FinishStep(ctx, bad, ckpt.StepRequest{Key: "k"}))
	add(c.FinishStep(ctx, ref, ckpt.StepRequest{}))
	add1(c.Steps(ctx, bad, ckpt.ListFilter{}))
	add(c.BeginOperation(ctx, bad, ckpt.OperationRequest{}))
	add(c.EndOperation(ctx, bad, ckpt.OperationEnd{Key: "k", Status: ckpt.OperationFailed}))
	add(c.EndOperation(ctx, ref, ckpt.OperationEnd{Key: "k", Status: "perhaps"}))
	add1(c.Operations(ctx, bad, ckpt.ListFilter{}))
	add(c.Append(ctx, bad, []ckpt.NewEvent{{Type: "t"}}, ""))
	add(c.Append(ctx, ref, nil, ""))
	add(c.Append(ctx, ref, []ckpt.NewEvent{{Type: "t", Payload: ckpt.JSON("{")}}, ""))
	add1(c.Events(ctx, bad, 0, 0))
	add(c.AnswerPrompt(ctx, ckpt.PromptAnswer{ID: "x"}))
	add1(nil, c.Follow(ctx, bad, 0, nil))
	for i, err := range errs {
		if ckpt.CodeOf(err) != ckpt.CodeInvalid {
			t.Errorf("%d: %v", i, err)
		}
	}
}

// TestStatesInsideAnswersAreExact: the state of a plan, and of a failed
// operation, is returned byte for byte as it was saved. A state that is not
// JSON is returned as base64.
func TestStatesInsideAnswersAreExact(t *testing.T) {
	w, runs := newRunWorld(t)
	for _, state := range []struct{ contentType, bytes string }{
		{ckpt.ContentTypeJSON, exact}, {ckpt.ContentTypeJSON, `"}}"`}, {"application/x-pickle", "\x00\xff<>"}, {"text/plain", ""},
		{ckpt.ContentTypeJSON, "[" + strings.Repeat(`"0123456789<",`, 100000) + "1]"},
	} {
		ck := &ckpt.Checkpoint{ID: id1, Agent: "a", ContentType: state.contentType, State: []byte(state.bytes)}
		runs.plan.Checkpoint, runs.ended.Restore = ck, ck
		plan, replayed, err := w.client.Resume(t.Context(), ckpt.ResumeRequest{Agent: "a"})
		expect.OK(t, err)
		expect.Equal(t, "replayed", replayed, false)
		expect.Equal(t, "state of the plan", string(plan.Checkpoint.State), state.bytes)
		ended, _, err := w.client.EndOperation(t.Context(), ref, ckpt.OperationEnd{Key: "k", Status: ckpt.OperationFailed})
		expect.OK(t, err)
		expect.Equal(t, "state before the operation", string(ended.Restore.State), state.bytes)
	}
	r := w.send("POST", runPathText+"/operations/k/fail", "")
	var answer struct {
		Restore struct{ State json.RawMessage }
		Key     string
	}
	expect.OK(t, jsontext.Check([]byte(r.body)))
	expect.OK(t, json.Unmarshal([]byte(r.body), &answer))
	expect.Equal(t, "in the text", string(answer.Restore.State), string(runs.ended.Restore.State))
	expect.Equal(t, "beside it", answer.Key, runs.ended.Key)

	runs.plan.Checkpoint, runs.ended.Restore = nil, nil
	r = w.send("POST", runPathText+"/resume", "")
	if !strings.HasSuffix(r.body, `,"checkpoint":null}`+"\n") || jsontext.Check([]byte(r.body)) != nil { // no member occurs twice
		t.Error(r.body)
	}
	plan, _, err := w.client.Resume(t.Context(), ckpt.ResumeRequest{Agent: "a"})
	expect.OK(t, err)
	same(t, "plan without a checkpoint", plan, &runs.plan)
	if r = w.send("POST", runPathText+"/operations/k/succeed", ""); strings.Contains(r.body, "restore") {
		t.Error(r.body)
	}
}

func TestHostileBodiesOfRuns(t *testing.T) {
	w, runs := newRunWorld(t)
	paths := []string{"", "/heartbeat", "/end", "/resume", "/steps", "/steps/k/finish", "/operations", "/operations/k/succeed", "/operations/k/fail", "/operations/k/resolve", "/events"}
	for _, path := range paths {
		target := runPathText + path
		if path == "" {
			target = "/v1/agents/a/runs"
		}
		for _, body := range []string{
			`{`, `[`, `x`, `"x"`, `7`, `{"none":1}`, `{"Epoch":1}`, `{"epoch":1,"epoch":2}`, `{"epoch":1.5}`, `{"epoch":99999999999999999999}`,
			`{} {}`, "{\"error\":\"\xff\"}", `{"status":7}`, `[{"type":1}]`, `[{"Type":"t"}]`, `[{"type":"t","payload":{"a":1,"a":2}}]`, `[null`,
			strings.Repeat("[", 20000), strings.Repeat(`{"state":`, 20000), `{"state":tru}`, `{"labels":[]}`, `{"labels":{"a":1}}`, `{"pid":"x"}`,
			`{"agent":"b"}`, `{"idempotency_key":"x"}`, `{"Resolve":true}`,
		} {
			runs.method = ""
			p := w.send("POST", target, body).problem(t)
			if method, _, _ := runs.called(); p.Status/100 != 4 || method != "" {
				t.Errorf("%s %.40q: %d, called %q", path, body, p.Status, method)
			}
		}
	}
	expect.Equal(t, "panics", w.server.Stats().Panics, int64(0))
	for _, target := range []string{
		"/v1/runs?agent=..%2Fx", "/v1/runs?limit=0", "/v1/runs?limit=1001", "/v1/runs?none=1", "/v1/agents/a/runs?agent=b", runPathText + "?x=1",
		runPathText + "/steps?limit=x", runPathText + "/operations?limit=-1", runPathText + "/events?after=-1", runPathText + "/events?after=x",
		runPathText + "/events?follow=yes", runPathText + "/events?limit=0", runPathText + "/events?follow=true&limit=1", "/v1/prompts?open=1", "/v1/prompts?limit=0",
		runPathText + "?owner=*",
	} {
		expect.Equal(t, target, getStatus(t, w.as("uid:0", true).Socket, target), 400)
	}
	expect.Equal(t, "epoch", w.send("POST", runPathText+"/events?epoch=-1", `[{"type":"t"}]`).status, 400)
	expect.Equal(t, "prompt", w.send("POST", "/v1/prompts/x/answer", `{"choice":"resume"}`).status, 400)
	expect.Equal(t, "prompt's body", w.send("POST", "/v1/prompts/"+id1+"/answer", ``).status, 400)
	expect.Equal(t, "contradiction", w.send("POST", runPathText+"/operations/k/succeed", `{"status":"failed"}`).status, 400)
	expect.Equal(t, "key", w.send("POST", runPathText+"/resume", ``, "Idempotency-Key: "+strings.Repeat("k", 513)).status, 400)
}

// getStatus returns the status of a GET.
func getStatus(t *testing.T, socket, target string) int {
	t.Helper()
	transport := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://x"+target, nil)
	expect.OK(t, err)
	resp, err := transport.RoundTrip(r)
	expect.OK(t, err)
	resp.Body.Close()
	return resp.StatusCode
}

func TestBodiesOfRunsAtTheLimitAndOneAbove(t *testing.T) {
	const most = 1 << 20
	w, runs := newRunWorld(t, limits(Limits{MaxBody: most}))
	sized := func(path, before, after string, n int) reply {
		return w.send("POST", runPathText+path, before+`"`+strings.Repeat("x", n-2)+`"`+after)
	}
	for path, before := range map[string]string{"/operations": `{"key":"k","name":"n","state":`, "/end": `{"status":"failed","state":`} {
		if r := sized(path, before, "}", most); r.status/100 != 2 {
			t.Errorf("%s: %d", path, r.status)
		}
		expect.Equal(t, path, sized(path, before, "}", most+1).problem(t).Code, ckpt.CodeTooLarge)
	}
	whole := func(path string, limit int) {
		t.Helper()
		body := `[{"type":"t"}]`
		if path != "/events" {
			body = `{}`
		}
		if r := w.send("POST", runPathText+path, body+strings.Repeat(" ", limit-len(body))); r.status/100 != 2 {
			t.Errorf("%s at the limit: %d %s", path, r.status, r.body)
		}
		expect.Equal(t, path, w.send("POST", runPathText+path, body+strings.Repeat(" ", limit+1-len(body))).problem(t).Code, ckpt.CodeTooLarge)
	}
	whole("/events", maxValues)
	whole("/steps", maxValues)
	whole("/steps/k/finish", maxValueBody)
	whole("/operations/k/fail", maxValueBody)
	whole("/heartbeat", maxSmallBody)
	whole("/resume", maxSmallBody)
	whole("/end", most+envelopeRoom+ckpt.MaxValue)

	value := ckpt.JSON(`"` + strings.Repeat("v", ckpt.MaxValue-2) + `"`)
	_, _, err := w.client.BeginStep(t.Context(), ref, ckpt.StepRequest{Key: "k", Name: "n", Status: ckpt.StepSucceeded, Args: value, Result: value})
	expect.OK(t, err)
	_, _, got := runs.called()
	expect.Equal(t, "result", len(got.(ckpt.StepRequest).Result), ckpt.MaxValue)
}

func TestErrorsOfRunsAreTheStores(t *testing.T) {
	w, runs := newRunWorld(t)
	for _, code := range ckpt.Codes {
		runs.err = ckpt.Errorf(code, "no")
		_, _, err := w.client.Resume(t.Context(), ckpt.ResumeRequest{Agent: "a"})
		expect.Code(t, err, code)
		_, err = w.client.Runs(t.Context(), ckpt.RunFilter{})
		expect.Code(t, err, code)
		_, _, err = w.client.EndOperation(t.Context(), ref, ckpt.OperationEnd{Key: "k", Status: ckpt.OperationFailed})
		expect.Code(t, err, code)
		_, _, err = w.client.BeginStep(t.Context(), ref, ckpt.StepRequest{Key: "k", Name: "n"})
		expect.Code(t, err, code)
		expect.Code(t, w.client.Follow(t.Context(), ref, 0, nil), code)
	}
}

func TestRunsOfOthersByAdministrators(t *testing.T) {
	w, runs := newRunWorld(t)
	admin := w.as("uid:0", true)
	admin.Owner = "uid:7"
	_, _, err := admin.Resume(t.Context(), ckpt.ResumeRequest{Agent: "a"})
	expect.OK(t, err)
	expect.Equal(t, "whose", runs.scope.Whose(), "uid:7")
	admin.Owner = ckpt.AllOwners
	_, err = admin.Prompts(t.Context(), ckpt.PromptFilter{})
	expect.OK(t, err)
	expect.Equal(t, "everybody's", runs.scope.Target, ckpt.AllOwners)
	other := w.as("uid:7", false)
	other.Owner = "uid:8"
	_, err = other.Run(t.Context(), ref)
	expect.Code(t, err, ckpt.CodeDenied)
}

// TestWritesOfRunsOutliveTheirClients: a write that has begun is finished, even
// if its client does not wait.
func TestWritesOfRunsOutliveTheirClients(t *testing.T) {
	t.Parallel()
	w, runs := newRunWorld(t)
	began, alive := make(chan struct{}), make(chan error, 1)
	runs.wait = func(ctx context.Context) {
		close(began)
		asking, cancel := ckpt.Asking(ctx)
		defer cancel()
		<-asking.Done() // now the server knows that the client is gone
		alive <- ctx.Err()
	}
	c := w.dial()
	go func() { <-began; c.Close() }()
	_, err := c.Write([]byte("POST " + runPathText + "/resume HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n"))
	expect.OK(t, err)
	expect.OK(t, <-alive)
}

func TestRepeatedWritesOfRunsHaveOneKey(t *testing.T) {
	w, runs := newRunWorld(t)
	runs.replayed = true
	r := w.send("POST", runPathText+"/end", `{"status":"failed"}`, "Idempotency-Key: k")
	expect.Equal(t, "header", r.header.Get(ipc.HeaderReplayed), "true")
	_, _, got := runs.called()
	expect.Equal(t, "key", got.(ckpt.EndRequest).IdempotencyKey, "k")
	_, _, err := w.client.StartRun(t.Context(), ckpt.RunRequest{Agent: "a"})
	expect.OK(t, err)
	_, _, got = runs.called()
	expect.OK(t, ckpt.CheckID(got.(ckpt.RunRequest).IdempotencyKey))
}
