package server_test

import (
	"errors"
	"maps"
	"net/http"
	"os"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/pb33f/libopenapi"
	validator "github.com/pb33f/libopenapi-validator"
	validation "github.com/pb33f/libopenapi-validator/errors"
	"github.com/pb33f/libopenapi/datamodel/high/base"
	v3 "github.com/pb33f/libopenapi/datamodel/high/v3"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/fleet"
	"github.com/ckptsidecar/ckptsidecar/internal/ipc"
	"github.com/ckptsidecar/ckptsidecar/internal/ipc/server"
	"github.com/ckptsidecar/ckptsidecar/internal/survey"
)

// description is api/openapi.yaml. It is written by hand, and these tests
// compare it with the server: routes and parameters with their table, fields
// with the Go types, answers with those of a server over a real store.
type description struct {
	model     *v3.Document
	validator validator.Validator
	mu        sync.Mutex // the validator changes the description while it reads it
}

// answered reports whether an answer matches the description.
func (d *description) answered(ask *http.Request, answer *http.Response) (ok bool, errs []*validation.ValidationError) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.validator.GetResponseBodyValidator().ValidateResponseBody(ask, answer)
}

// asked reports whether a request matches the description.
func (d *description) asked(ask *http.Request) (ok bool, errs []*validation.ValidationError) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.validator.ValidateHttpRequestSync(ask)
}

func readDescription(t *testing.T) *description {
	t.Helper()
	d, err := readOnce()
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// readOnce reads the file once for all tests, because reading takes long.
var readOnce = sync.OnceValues(func() (*description, error) {
	text, err := os.ReadFile("../../../api/openapi.yaml")
	if err != nil {
		return nil, err
	}
	doc, err := libopenapi.NewDocument(text)
	if err != nil {
		return nil, err
	}
	model, err := doc.BuildV3Model()
	if err != nil {
		return nil, err
	}
	v, errs := validator.NewValidator(doc)
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	return &description{model: &model.Model, validator: v}, nil
})

// operations returns the described calls by "METHOD path".
func (d *description) operations() map[string]*v3.Operation {
	list := map[string]*v3.Operation{}
	for path, item := range d.model.Paths.PathItems.FromOldest() {
		for method, op := range item.GetOperations().FromOldest() {
			list[strings.ToUpper(method)+" "+path] = op
		}
	}
	return list
}

func TestDescriptionIsOpenAPI(t *testing.T) {
	d := readDescription(t)
	d.mu.Lock()
	defer d.mu.Unlock()
	ok, errs := d.validator.ValidateDocument()
	if !ok {
		for _, e := range errs {
			t.Error(e)
		}
	}
}

func TestDescriptionHasTheRoutesAndParametersOfTheServer(t *testing.T) {
	d := readDescription(t)
	served, described := map[string][]string{}, map[string][]string{}
	for _, r := range server.Routes() {
		served[r.Method+" "+r.Path] = slices.Sorted(slices.Values(append(r.Query, "owner")))
	}
	for path, item := range d.model.Paths.PathItems.FromOldest() {
		for method, op := range item.GetOperations().FromOldest() {
			var names []string
			for _, p := range slices.Concat(item.Parameters, op.Parameters) {
				if p.In == "query" {
					names = append(names, p.Name)
				}
			}
			described[strings.ToUpper(method)+" "+path] = slices.Sorted(slices.Values(names))
		}
	}
	if diff := cmp.Diff(served, described); diff != "" {
		t.Errorf("served (-) and described (+):\n%s", diff)
	}
}

func TestDescriptionHasTheFieldsOfTheTypes(t *testing.T) {
	d := readDescription(t)
	types := map[string]any{
		"Checkpoint": ckpt.Checkpoint{}, "Saved": ckpt.Saved{}, "CheckpointPage": ckpt.CheckpointPage{},
		"CheckpointPatch": ckpt.CheckpointPatch{}, "Removal": ckpt.Removal{}, "Program": ckpt.Program{},
		"RestoreRequest": ckpt.RestoreRequest{}, "Agent": ckpt.Agent{}, "AgentPage": ckpt.AgentPage{}, "Erased": ckpt.Erased{},
		"Policy": ckpt.Policy{}, "PruneRequest": ckpt.PruneRequest{}, "PruneReport": ckpt.PruneReport{},
		"ImportReport": ckpt.ImportReport{}, "AuditRow": ckpt.AuditRow{}, "AuditPage": ckpt.AuditPage{},
		"Status": ckpt.Status{}, "DatabaseStatus": ckpt.DatabaseStatus{}, "WriterStatus": ckpt.WriterStatus{},
		"WorkerStatus": ckpt.WorkerStatus{}, "Diff": ckpt.Diff{}, "DiffSummary": ckpt.DiffSummary{}, "DiffField": ckpt.DiffField{},
		"Run": ckpt.Run{}, "RunPage": ckpt.RunPage{}, "RunRequest": ckpt.RunRequest{}, "Heartbeat": ckpt.Heartbeat{},
		"EndRequest": ckpt.EndRequest{}, "ResumeRequest": ckpt.ResumeRequest{}, "Plan": ckpt.Plan{},
		"CompletedStep": ckpt.CompletedStep{}, "InterruptedStep": ckpt.InterruptedStep{}, "SyntheticResult": ckpt.SyntheticResult{},
		"Skipped": ckpt.Skipped{}, "ProgramRest": ckpt.ProgramRest{}, "Step": ckpt.Step{}, "StepPage": ckpt.StepPage{},
		"StepRequest": ckpt.StepRequest{}, "Operation": ckpt.Operation{}, "RemovedOperation": ckpt.RemovedOperation{}, "OperationEnded": ckpt.OperationEnded{},
		"OperationPage": ckpt.OperationPage{}, "OperationRequest": ckpt.OperationRequest{}, "OperationEnd": ckpt.OperationEnd{},
		"Event": ckpt.Event{}, "EventPage": ckpt.EventPage{}, "NewEvent": ckpt.NewEvent{}, "Appended": ckpt.Appended{},
		"Prompt": ckpt.Prompt{}, "PromptPage": ckpt.PromptPage{}, "PromptAnswer": ckpt.PromptAnswer{}, "QuestionRequest": ckpt.QuestionRequest{}, "NotifyTested": ckpt.NotifyTested{}, "OwnerEventPage": ckpt.OwnerEventPage{}, "NotifyStatus": ckpt.NotifyStatus{},
		"Detector": ckpt.Detector{}, "Budget": ckpt.Budget{}, "Rule": ckpt.Rule{}, "Finding": ckpt.Finding{}, "FindingRequest": ckpt.FindingRequest{},
		"PostedFinding": ckpt.PostedFinding{}, "DismissRequest": ckpt.DismissRequest{}, "DismissedFinding": ckpt.DismissedFinding{},
		"DriftVerdict": ckpt.DriftVerdict{}, "DriftReport": ckpt.DriftReport{}, "DriftStatus": ckpt.DriftStatus{}, "FindingCount": ckpt.FindingCount{}, "TimelineEntry": ckpt.TimelineEntry{},
		"Calibration": ckpt.Calibration{}, "EvaluateRequest": ckpt.EvaluateRequest{}, "Evaluation": ckpt.Evaluation{}, "EvaluatedRow": ckpt.EvaluatedRow{}, "WarnedRun": ckpt.WarnedRun{},
		"FirstFired": ckpt.FirstFired{}, "ExplainedStep": ckpt.ExplainedStep{}, "DriftFeedback": ckpt.DriftFeedback{}, "RuleFeedback": ckpt.RuleFeedback{}, "Suggestion": ckpt.Suggestion{},
		"GraphSaved": ckpt.GraphSaved{}, "GraphWritten": ckpt.GraphWritten{}, "GraphRemoved": ckpt.GraphRemoved{}, "GraphCopied": ckpt.GraphCopied{},
		"GraphPrune": ckpt.GraphPrune{}, "GraphCopy": ckpt.GraphCopy{},
		"TreeEntry": ckpt.TreeEntry{}, "LeftOut": ckpt.LeftOut{}, "Tree": ckpt.Tree{}, "TreeRequest": ckpt.TreeRequest{}, "TreeStored": ckpt.TreeStored{},
		"ContentsAsked": ipc.ContentsBody{}, "ContentsMissing": ckpt.ContentsMissing{}, "ContentsStored": ckpt.ContentsStored{},
		"ContentRefused": ckpt.ContentRefused{}, "AttachRequest": ckpt.AttachRequest{}, "FilesPage": ckpt.FilesPage{}, "FileChange": ckpt.FileChange{},
		"FilesDiff": ckpt.FilesDiff{},
		"Overview":  survey.Overview{}, "Need": survey.Need{}, "Counts": survey.Counts{}, "RunLine": survey.RunLine{}, "RunBin": survey.RunBin{}, "Segment": survey.Segment{},
		"Verified": survey.Verified{}, "Findings": survey.Findings{}, "Change": survey.Change{}, "FleetMark": fleet.Mark{}, "FleetErasure": fleet.ErasureShown{}, "FleetHostNamed": fleet.HostNamed{}, "ErasedFleet": ckpt.ErasedFleet{}, "FleetStatus": fleet.Status{}, "FleetHosts": fleet.Hosts{}, "FleetHost": fleet.HostShown{}, "FleetRuns": fleet.Runs{}, "FleetRun": fleet.RunShown{},
		"Settings": survey.Settings{}, "Setting": survey.Setting{}, "Forecast": survey.Forecast{}, "Going": survey.Going{}, "Keeping": survey.Keeping{},
		"Transcript": survey.Transcript{}, "TranscriptStep": survey.TranscriptStep{}, "HeardEvent": survey.HeardEvent{}, "StepCause": survey.StepCause{}, "Recorder": survey.Recorder{}, "StepLane": survey.StepLane{}, "StepMark": survey.StepMark{}, "StepBin": survey.StepBin{}, "OperationLane": survey.OperationLane{}, "OperationMark": survey.OperationMark{}, "OperationBin": survey.OperationBin{}, "CheckpointLane": survey.CheckpointLane{}, "CheckpointMark": survey.CheckpointMark{}, "CheckpointBin": survey.CheckpointBin{}, "FindingLane": survey.FindingLane{}, "FindingMark": survey.FindingMark{}, "FindingBin": survey.FindingBin{}, "Whole": survey.Whole{}, "Sums": survey.Sums{},
		"ClaimRequest": fleet.ClaimRequest{}, "Claimed": fleet.Claimed{}, "DamagedCheckpoint": fleet.DamagedCheckpoint{}, "Strand": fleet.Strand{},
		"Version": ckpt.Version{}, "Health": ipc.Health{}, "Problem": ipc.Problem{},
	}
	for name, v := range types {
		proxy := d.model.Components.Schemas.GetOrZero(name)
		if proxy == nil {
			t.Errorf("there is no schema %s", name)
			continue
		}
		want, got := fieldsOf(reflect.TypeOf(v)), propertiesOf(proxy.Schema())
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s, the type (-) and the schema (+), true for required:\n%s", name, diff)
		}
	}
}

// fieldsOf returns the members of a type's JSON; true for members that are
// always present.
func fieldsOf(t reflect.Type) map[string]bool {
	fields := map[string]bool{}
	for _, f := range reflect.VisibleFields(t) {
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if f.Anonymous || !f.IsExported() || name == "-" {
			continue
		}
		fields[name] = options != "omitempty"
	}
	return fields
}

// propertiesOf returns the members that a schema describes; true for required
// members.
func propertiesOf(s *base.Schema) map[string]bool {
	list := map[string]bool{}
	for _, part := range s.AllOf {
		maps.Copy(list, propertiesOf(part.Schema()))
	}
	if s.Properties != nil {
		for name := range s.Properties.KeysFromOldest() {
			list[name] = slices.Contains(s.Required, name)
		}
	}
	return list
}

func TestDescriptionHasTheCodesOfErrors(t *testing.T) {
	var described []ckpt.Code
	for _, node := range readDescription(t).model.Components.Schemas.GetOrZero("Code").Schema().Enum {
		described = append(described, ckpt.Code(node.Value))
	}
	if diff := cmp.Diff(ckpt.Codes, described); diff != "" {
		t.Errorf("codes (-) and described (+):\n%s", diff)
	}
}

// TestDescriptionHasTheEnvelopeOfASave: the envelope of a save has no exported
// type. The server must accept each described member and no other.
func TestDescriptionHasTheEnvelopeOfASave(t *testing.T) {
	w := newAPI(t)
	full := `{"kind":"routine","state":{},"run":"r","epoch":null,"parent":null,"fork_from":null,"step":null,"labels":{},"metadata":{},"program":null`
	described := propertiesOf(w.doc.model.Components.Schemas.GetOrZero("SaveEnvelope").Schema())
	for name := range described {
		if !strings.Contains(full, `"`+name+`":`) {
			t.Errorf("this test does not send %s", name)
		}
	}
	if n := strings.Count(full, `":`); n != len(described) {
		t.Errorf("this test sends %d members, %d are described", n, len(described))
	}
	w.want(201, post("/v1/agents/a/checkpoints", full+`}`))
	w.want(400, post("/v1/agents/a/checkpoints", full+`,"more":1}`))
}
