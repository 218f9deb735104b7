package server_test

import (
	"context"
	"io"
	"net/http/httptest"
	"strconv"
	"testing"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/expect"
	"github.com/ckptsidecar/ckptsidecar/internal/fleet"
	"github.com/ckptsidecar/ckptsidecar/internal/ipc"
	"github.com/ckptsidecar/ckptsidecar/internal/ipc/server"
	"github.com/ckptsidecar/ckptsidecar/internal/survey"
)

// TestEveryCallDescribesWhatMayAlwaysCome: some answers are possible for every
// call, and each call describes them.
func TestEveryCallDescribesWhatMayAlwaysCome(t *testing.T) {
	for name, op := range readDescription(t).operations() {
		statuses := []int{400, 403, 429, 500, 503}
		if name[:4] != "GET " {
			statuses = append(statuses, 507) // a delete needs room too
		}
		for _, status := range statuses {
			if op.Responses.Codes.GetOrZero(strconv.Itoa(status)) == nil {
				t.Errorf("%s does not describe %d", name, status)
			}
		}
	}
}

// TestErrorsAreAsDescribed: a store that fails in a given way produces each
// described error of a call. The answer has the described status, and a code of
// that status.
func TestErrorsAreAsDescribed(t *testing.T) {
	t.Parallel()
	expect.OneThread(t)
	d := readDescription(t)
	operations := d.operations()
	given := 0
	for _, r := range server.Routes() {
		for _, code := range ckpt.Codes {
			for _, outcome := range []ckpt.Outcome{"", ckpt.OutcomeSaved, ckpt.OutcomeUnknown} {
				e := &ckpt.Error{Code: code, Message: "a test made this", Outcome: outcome, RetryAfter: time.Second}
				ask := asked(r.Method, r.Path)
				rec := httptest.NewRecorder()
				server.NewServer(server.Options{Store: server.StoreOf(failing{e}), Fleet: failing{e}}).HandlerFor(ckpt.Caller{Owner: "uid:1"}).ServeHTTP(rec, ask.http())
				described := operations[r.Method+" "+r.Path].Responses.Codes.GetOrZero(strconv.Itoa(ipc.NewProblem(e).Status)) != nil
				if rec.Code < 400 || rec.Code != ipc.NewProblem(e).Status || !described {
					continue // it calls no store method, or its store cannot fail like this
				}
				given++
				if ok, errs := d.answered(ask.http(), rec.Result()); !ok {
					t.Errorf("%s %s with %s: %s\n%s", r.Method, r.Path, code, rec.Body, explain(errs))
				}
			}
		}
	}
	if given < 400 {
		t.Errorf("only %d errors were given", given)
	}
}

// TestWrongAnswersAreFound tests the check itself: it must find an answer that
// differs from the description.
func TestWrongAnswersAreFound(t *testing.T) {
	d := readDescription(t)
	for name, c := range map[string]struct {
		r      request
		status int
		of     string
		body   string
	}{
		"a field is missing":   {get("/healthz"), 200, "application/json", `{}`},
		"a field is wrong":     {get("/healthz"), 200, "application/json", `{"status":"bad"}`},
		"another status":       {get("/healthz"), 201, "application/json", `{"status":"ok"}`},
		"another Content-Type": {get("/healthz"), 200, "text/html", `{"status":"ok"}`},
		"another status's code": {get("/healthz"), 400, "application/problem+json",
			`{"type":"urn:ckptsidecar:problem:busy","title":"t","status":400,"detail":"d","code":"busy","retryable":true,"outcome":"not_saved"}`},
		"a header is missing": {get("/v1/checkpoints/" + idA + "/state"), 200, "application/json", `{}`},
		"no such path":        {get("/v1/none"), 200, "application/json", `{}`},
	} {
		rec := httptest.NewRecorder()
		rec.Header().Set("Content-Type", c.of)
		rec.WriteHeader(c.status)
		_, _ = io.WriteString(rec, c.body)
		if ok, _ := d.answered(c.r.http(), rec.Result()); ok {
			t.Errorf("where %s, nothing is found", name)
		}
	}
}

// failing is a store whose methods all fail in the same way.
type failing struct{ err *ckpt.Error }

func (f failing) Save(context.Context, ckpt.Scope, *ckpt.SaveRequest) (*ckpt.Saved, error) {
	return nil, f.err
}

func (f failing) Checkpoint(context.Context, ckpt.Scope, string, bool) (*ckpt.Checkpoint, error) {
	return nil, f.err
}

func (f failing) Memory(size int) []byte { return make([]byte, size) }

func (f failing) Overview(context.Context, ckpt.Scope, survey.OverviewQuery) (*survey.Overview, bool, error) {
	return nil, false, f.err
}

func (f failing) Recorder(context.Context, ckpt.Scope, ckpt.RunRef, survey.RecorderQuery) (*survey.Recorder, error) {
	return nil, f.err
}

func (f failing) Transcript(context.Context, ckpt.Scope, ckpt.RunRef, survey.TranscriptQuery) (*survey.Transcript, error) {
	return nil, f.err
}

func (f failing) FleetStatus(context.Context, ckpt.Scope) (*fleet.Status, error) { return nil, f.err }

func (f failing) FleetHosts(context.Context, ckpt.Scope) (*fleet.Hosts, error) { return nil, f.err }

func (f failing) FleetRuns(context.Context, ckpt.Scope, fleet.RunsQuery) (*fleet.Runs, error) {
	return nil, f.err
}

func (f failing) Claim(context.Context, ckpt.Scope, fleet.ClaimRequest) (*fleet.Claimed, error) {
	return nil, f.err
}

func (f failing) VerifyChain(context.Context, ckpt.Scope) (*survey.Verified, error) {
	return nil, f.err
}

func (f failing) Findings(context.Context, ckpt.Scope, survey.FindingsQuery) (*survey.Findings, error) {
	return nil, f.err
}

func (f failing) Forecast(context.Context, ckpt.Scope, survey.ForecastQuery) (*survey.Forecast, error) {
	return nil, f.err
}

func (f failing) WatchChanges(ckpt.Scope) (func(context.Context) ([]survey.Change, error), func()) {
	return func(context.Context) ([]survey.Change, error) { return nil, f.err }, func() {}
}

func (f failing) Base(context.Context, ckpt.Scope, string, string) ([]byte, string, func(), error) {
	return nil, "", nil, f.err
}

func (f failing) Checkpoints(context.Context, ckpt.Scope, ckpt.CheckpointFilter) (*ckpt.CheckpointPage, error) {
	return nil, f.err
}

func (f failing) Latest(context.Context, ckpt.Scope, ckpt.CheckpointFilter, bool) (*ckpt.Checkpoint, error) {
	return nil, f.err
}

func (f failing) Patch(context.Context, ckpt.Scope, string, ckpt.CheckpointPatch) (*ckpt.Checkpoint, error) {
	return nil, f.err
}

func (f failing) Delete(context.Context, ckpt.Scope, string) (*ckpt.Removal, error) {
	return nil, f.err
}

func (f failing) Restore(context.Context, ckpt.Scope, ckpt.RestoreRequest) (*ckpt.Checkpoint, bool, error) {
	return nil, false, f.err
}

func (f failing) Agents(context.Context, ckpt.Scope, ckpt.AgentFilter) (*ckpt.AgentPage, error) {
	return nil, f.err
}

func (f failing) Policy(context.Context, ckpt.Scope, string) (*ckpt.Policy, error) {
	return nil, f.err
}

func (f failing) PolicyTag(context.Context, ckpt.Scope, string) (string, error) {
	return "", f.err
}

func (f failing) SetOwnPolicy(context.Context, ckpt.Scope, string, []byte, ...string) (*ckpt.Policy, error) {
	return nil, f.err
}

func (f failing) PolicyLayers(context.Context, ckpt.Scope, string) (*ckpt.PolicyLayers, error) {
	return nil, f.err
}

func (f failing) SetOwnerPolicy(context.Context, ckpt.Scope, []byte) (*ckpt.OwnerPolicySet, error) {
	return nil, f.err
}

func (f failing) Erased() *ckpt.ErasedFleet { return nil }

func (f failing) Erase(context.Context, ckpt.Scope, string) (*ckpt.Erased, error) {
	return nil, f.err
}

func (f failing) DeleteRun(context.Context, ckpt.Scope, ckpt.RunRef, bool) (*ckpt.DeletedRun, error) {
	return nil, f.err
}

func (f failing) ClearRun(context.Context, ckpt.Scope, ckpt.RunRef) (*ckpt.ClearedRun, error) {
	return nil, f.err
}

func (f failing) Prune(context.Context, ckpt.Scope, ckpt.PruneRequest, string) (*ckpt.PruneReport, bool, error) {
	return nil, false, f.err
}

func (f failing) ExportAgents(context.Context, ckpt.Scope, ckpt.ExportRequest, io.Writer) error {
	return f.err
}

func (f failing) Import(context.Context, ckpt.Scope, ckpt.ImportRequest, io.Reader) (*ckpt.ImportReport, error) {
	return nil, f.err
}

func (f failing) Chown(context.Context, ckpt.Scope, ckpt.ChownRequest, string) (*ckpt.Chowned, bool, error) {
	return nil, false, f.err
}

func (f failing) ArchiveAudit(context.Context, ckpt.Scope, ckpt.ArchiveRequest) (*ckpt.AuditArchived, error) {
	return nil, f.err
}

func (f failing) Audit(context.Context, ckpt.Scope, ckpt.AuditFilter) (*ckpt.AuditPage, error) {
	return nil, f.err
}

func (f failing) Refused(context.Context, ckpt.Scope, ckpt.Refusal) {}

func (f failing) Status(context.Context, ckpt.Scope) (*ckpt.Status, error) { return nil, f.err }

func (f failing) Ready(context.Context) error { return f.err }

func (f failing) Health() (string, []string) { return "failed", nil }

func (f failing) StartRun(context.Context, ckpt.Scope, ckpt.RunRequest) (*ckpt.Run, bool, error) {
	return nil, false, f.err
}

func (f failing) Run(context.Context, ckpt.Scope, ckpt.RunRef) (*ckpt.Run, error) {
	return nil, f.err
}

func (f failing) Runs(context.Context, ckpt.Scope, ckpt.RunFilter) (*ckpt.RunPage, error) {
	return nil, f.err
}

func (f failing) Beat(context.Context, ckpt.Scope, ckpt.RunRef, ckpt.Heartbeat) (*ckpt.Run, error) {
	return nil, f.err
}

func (f failing) EndRun(context.Context, ckpt.Scope, ckpt.RunRef, ckpt.EndRequest) (*ckpt.Run, bool, error) {
	return nil, false, f.err
}

func (f failing) Resume(context.Context, ckpt.Scope, ckpt.ResumeRequest) (*ckpt.Plan, bool, error) {
	return nil, false, f.err
}

func (f failing) BeginStep(context.Context, ckpt.Scope, ckpt.RunRef, ckpt.StepRequest) (*ckpt.Step, bool, error) {
	return nil, false, f.err
}

func (f failing) FinishStep(context.Context, ckpt.Scope, ckpt.RunRef, ckpt.StepRequest) (*ckpt.Step, bool, error) {
	return nil, false, f.err
}

func (f failing) Steps(context.Context, ckpt.Scope, ckpt.RunRef, ckpt.ListFilter) (*ckpt.StepPage, error) {
	return nil, f.err
}

func (f failing) BeginOperation(context.Context, ckpt.Scope, ckpt.RunRef, ckpt.OperationRequest) (*ckpt.Operation, bool, error) {
	return nil, false, f.err
}

func (f failing) EndOperation(context.Context, ckpt.Scope, ckpt.RunRef, ckpt.OperationEnd) (*ckpt.OperationEnded, bool, error) {
	return nil, false, f.err
}

func (f failing) ResolveOperation(context.Context, ckpt.Scope, ckpt.RunRef, ckpt.OperationResolution) (*ckpt.OperationEnded, bool, error) {
	return nil, false, f.err
}

func (f failing) Operations(context.Context, ckpt.Scope, ckpt.RunRef, ckpt.ListFilter) (*ckpt.OperationPage, error) {
	return nil, f.err
}

func (f failing) Append(context.Context, ckpt.Scope, ckpt.RunRef, []ckpt.NewEvent, string) (*ckpt.Appended, bool, error) {
	return nil, false, f.err
}

func (f failing) Events(context.Context, ckpt.Scope, ckpt.RunRef, int64, int) (*ckpt.EventPage, error) {
	return nil, f.err
}

func (f failing) PutToken(context.Context, ckpt.Scope, ckpt.TokenRequest) (*ckpt.Token, bool, error) {
	return nil, false, f.err
}

func (f failing) RevokeToken(context.Context, ckpt.Scope, string) (*ckpt.Token, error) {
	return nil, f.err
}

func (f failing) Tokens(context.Context, ckpt.Scope, ckpt.TokenFilter) (*ckpt.TokenPage, error) {
	return nil, f.err
}

func (f failing) Prompts(context.Context, ckpt.Scope, ckpt.PromptFilter) (*ckpt.PromptPage, error) {
	return nil, f.err
}

func (f failing) AskQuestion(context.Context, ckpt.Scope, ckpt.QuestionRequest) (*ckpt.Prompt, bool, error) {
	return nil, false, f.err
}

func (f failing) Prompt(context.Context, ckpt.Scope, string) (*ckpt.Prompt, error) {
	return nil, f.err
}

func (f failing) NotifyTest(context.Context, ckpt.Scope) (*ckpt.NotifyTested, error) {
	return nil, f.err
}

func (f failing) EventsOf(context.Context, ckpt.Scope, int64, int) (*ckpt.OwnerEventPage, error) {
	return nil, f.err
}

func (f failing) PromptsChanged() <-chan struct{} { return nil }

func (f failing) AnswerPrompt(context.Context, ckpt.Scope, ckpt.PromptAnswer) (*ckpt.Prompt, bool, error) {
	return nil, false, f.err
}

func (f failing) Changed() <-chan struct{} { return nil }

func (f failing) Drift(context.Context, ckpt.Scope, ckpt.DriftFilter) (*ckpt.DriftReport, error) {
	return nil, f.err
}

func (f failing) Evaluate(context.Context, ckpt.Scope, ckpt.EvaluateRequest) (*ckpt.Evaluation, error) {
	return nil, f.err
}

func (f failing) Feedback(context.Context, ckpt.Scope, string) (*ckpt.DriftFeedback, error) {
	return nil, f.err
}

func (f failing) PostFinding(context.Context, ckpt.Scope, string, ckpt.FindingRequest) (*ckpt.PostedFinding, bool, error) {
	return nil, false, f.err
}

func (f failing) Dismiss(context.Context, ckpt.Scope, ckpt.DismissRequest) (*ckpt.DismissedFinding, bool, error) {
	return nil, false, f.err
}

func (f failing) Finding(context.Context, ckpt.Scope, string) (*ckpt.Finding, error) {
	return nil, f.err
}

func (f failing) GraphPut(context.Context, ckpt.Scope, *ckpt.GraphPut) (*ckpt.GraphSaved, error) {
	return nil, f.err
}

func (f failing) GraphPutWrites(context.Context, ckpt.Scope, *ckpt.GraphPutWrites) (*ckpt.GraphWritten, error) {
	return nil, f.err
}

func (f failing) GraphTuple(context.Context, ckpt.Scope, ckpt.GraphGet) (*ckpt.GraphTuple, error) {
	return nil, f.err
}

func (f failing) GraphTuples(context.Context, ckpt.Scope, ckpt.GraphQuery) (*ckpt.GraphPage, error) {
	return nil, f.err
}

func (f failing) GraphHistory(context.Context, ckpt.Scope, ckpt.GraphHistoryQuery) ([]ckpt.GraphHistory, error) {
	return nil, f.err
}

func (f failing) GraphDeleteThread(context.Context, ckpt.Scope, string, string) (*ckpt.GraphRemoved, error) {
	return nil, f.err
}

func (f failing) GraphDeleteRuns(context.Context, ckpt.Scope, string, []string) (*ckpt.GraphRemoved, error) {
	return nil, f.err
}

func (f failing) GraphPrune(context.Context, ckpt.Scope, ckpt.GraphPrune) (*ckpt.GraphRemoved, error) {
	return nil, f.err
}

func (f failing) GraphCopyThread(context.Context, ckpt.Scope, ckpt.GraphCopy) (*ckpt.GraphCopied, error) {
	return nil, f.err
}

func (f failing) MissingContents(context.Context, ckpt.Scope, string, []string) (*ckpt.ContentsMissing, error) {
	return nil, f.err
}

func (f failing) PutContents(context.Context, ckpt.Scope, string, func() (*ckpt.FileContent, error)) (*ckpt.ContentsStored, error) {
	return nil, f.err
}

func (f failing) Content(context.Context, ckpt.Scope, string, string) ([]byte, error) {
	return nil, f.err
}

func (f failing) PutTree(context.Context, ckpt.Scope, ckpt.TreeRequest) (*ckpt.TreeStored, error) {
	return nil, f.err
}

func (f failing) FilesOf(context.Context, ckpt.Scope, ckpt.FilesFilter) (*ckpt.FilesPage, error) {
	return nil, f.err
}

func (f failing) DiffFiles(context.Context, ckpt.Scope, ckpt.FilesDiffFilter) (*ckpt.FilesDiff, error) {
	return nil, f.err
}

func (f failing) Attach(context.Context, ckpt.Scope, ckpt.AttachRequest) (*ckpt.Checkpoint, bool, error) {
	return nil, false, f.err
}

func (f failing) Bring(context.Context, ckpt.Scope, *ckpt.ResumeRequest) error { return f.err }

func (f failing) BringThread(context.Context, ckpt.Scope, ckpt.RunRef) error { return f.err }

func (f failing) Release(context.Context, ckpt.Scope, ckpt.RunRef) (*fleet.Released, error) {
	return nil, f.err
}

func (f failing) Drain(context.Context, ckpt.Scope, fleet.DrainRequest) (*fleet.Drained, error) {
	return nil, f.err
}
