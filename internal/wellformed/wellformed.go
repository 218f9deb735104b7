// Package wellformed says whether a request is valid in itself, regardless of what is stored. It
// first calls the request's own check, and then reads the JSON in the request, for which the root
// package has no parser.
//
// This package may import the root and internal/jsontext.
package wellformed

import (
	"bytes"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/jsontext"
)

// Save checks a request to save.
func Save(r *ckpt.SaveRequest) error {
	if err := SaveRest(r); err != nil || !ckpt.IsJSON(r.ContentType) {
		return err
	}
	return state(r.State)
}

// SaveRest checks all of a request to save except the state.
func SaveRest(r *ckpt.SaveRequest) error {
	if err := r.Check(); err != nil {
		return err
	}
	return Metadata(r.Metadata)
}

// RunEnd checks a request to end a run.
func RunEnd(r *ckpt.EndRequest) error {
	if err := r.Check(); err != nil {
		return err
	}
	if err := value("result", r.Result); err != nil || len(r.State) == 0 {
		return err
	}
	return state(r.State)
}

// Step checks a request to begin or to finish a step.
func Step(r *ckpt.StepRequest, finish bool) error {
	if r.Name == "" && !finish {
		r.Name = ckpt.StepName(r.Key)
	}
	if err := r.Check(finish); err != nil {
		return err
	}
	if err := value("args", r.Args); err != nil {
		return err
	}
	return value("result", r.Result)
}

// Operation checks a request to begin an operation.
func Operation(r *ckpt.OperationRequest) error {
	r.Args, r.ResultSchema = orNone(r.Args), orNone(r.ResultSchema)
	if err := r.Check(); err != nil {
		return err
	}
	if err := value("args", r.Args); err != nil {
		return err
	}
	if len(r.ResultSchema) > 0 {
		if err := object("result_schema", r.ResultSchema); err != nil {
			return err
		}
	}
	if len(r.State) == 0 {
		return nil
	}
	return state(r.State)
}

// OperationEnd checks a request to end an operation.
func OperationEnd(r *ckpt.OperationEnd) error {
	if err := r.Check(); err != nil {
		return err
	}
	return value("result", r.Result)
}

// OperationResolution checks what a person says about the end of an operation. A result of null counts as none.
func OperationResolution(r *ckpt.OperationResolution) error {
	r.Result = orNone(r.Result)
	if err := r.Check(); err != nil {
		return err
	}
	return value("result", r.Result)
}

// orNone returns nil for a JSON value that is absent or null.
func orNone(v ckpt.JSON) ckpt.JSON {
	if text := bytes.TrimSpace(v); len(text) == 0 || string(text) == "null" {
		return nil
	}
	return v
}

// Question checks a question of a run. A schema of null counts as none.
func Question(r *ckpt.QuestionRequest) error {
	r.Schema = orNone(r.Schema)
	if err := r.Check(); err != nil || len(r.Schema) == 0 {
		return err
	}
	return object("schema", r.Schema)
}

// PromptAnswer checks an answer to a prompt. Data of null counts as none.
func PromptAnswer(a *ckpt.PromptAnswer) error {
	a.Data = orNone(a.Data)
	if err := a.Check(); err != nil {
		return err
	}
	return value("data", a.Data)
}

// SameJSON says whether two JSON texts have the same meaning. An absent text and null differ.
func SameJSON(a, b []byte) bool {
	if len(a) == 0 || len(b) == 0 || bytes.Equal(a, b) {
		return bytes.Equal(a, b)
	}
	x, err := jsontext.Canonical(a)
	if err != nil {
		return false
	}
	y, err := jsontext.Canonical(b)
	return err == nil && bytes.Equal(x, y)
}

// Events checks a batch of events.
func Events(events []ckpt.NewEvent) error {
	if err := ckpt.CheckEvents(events); err != nil {
		return err
	}
	for i := range events {
		if err := value("payload", events[i].Payload); err != nil {
			return err
		}
	}
	return nil
}

// Finding checks a finding that an agent reports.
func Finding(r *ckpt.FindingRequest) error {
	if err := r.Check(); err != nil || len(r.Evidence) == 0 {
		return err
	}
	if len(r.Evidence) > ckpt.MaxMetadata {
		return ckpt.Errorf(ckpt.CodeTooLarge, "the evidence is %d bytes long: at most %d are allowed", len(r.Evidence), ckpt.MaxMetadata)
	}
	return object("evidence", r.Evidence)
}

// GraphPut checks a request to store a checkpoint of LangGraph.
func GraphPut(r *ckpt.GraphPut) error {
	if err := r.Check(); err != nil {
		return err
	}
	return Metadata(r.Metadata)
}

// Metadata accepts an empty text, or one strict JSON object of at most ckpt.MaxMetadata bytes.
func Metadata(metadata []byte) error {
	switch {
	case len(metadata) == 0:
		return nil
	case len(metadata) > ckpt.MaxMetadata:
		return ckpt.Errorf(ckpt.CodeTooLarge,
			"the metadata is %d bytes long: at most %d are allowed; put large things into the state", len(metadata), ckpt.MaxMetadata)
	}
	return object("metadata", metadata)
}

// Policy checks a policy. internal/drift decides whether its schema, its rules and its detectors
// can be used.
func Policy(p ckpt.Policy) error {
	if err := p.Check(); err != nil || p.Schema == nil {
		return err
	}
	if len(p.Schema) > ckpt.MaxSchema {
		return ckpt.Errorf(ckpt.CodeTooLarge, "the schema is %d bytes long: at most %d are allowed", len(p.Schema), ckpt.MaxSchema)
	}
	if err := jsontext.Check(p.Schema); err != nil {
		return ckpt.Errorf(ckpt.CodeInvalid, "schema is not JSON: %v", err)
	}
	switch bytes.TrimSpace(p.Schema)[0] {
	case '{', '"', 't', 'f':
		return nil
	}
	return ckpt.Errorf(ckpt.CodeInvalid, "schema is neither a JSON Schema nor the name of one that comes with the program, nor null")
}

// ParsePolicy strictly reads a policy over the defaults.
func ParsePolicy(data []byte) (ckpt.Policy, error) {
	p := ckpt.PolicyToRead()
	if err := jsontext.Decode(data, &p); err != nil {
		return ckpt.Policy{}, ckpt.Errorf(ckpt.CodeInvalid, "the policy is wrong: %v", err)
	}
	p.Fill()
	return p, Policy(p)
}

// value checks an optional value of a step, an operation or an event.
func value(what string, text []byte) error {
	if len(text) > ckpt.MaxValue {
		return ckpt.Errorf(ckpt.CodeTooLarge, "the %s is %d bytes long: at most %d are allowed", what, len(text), ckpt.MaxValue)
	}
	if len(text) == 0 {
		return nil
	}
	return parsed(what, text)
}

func state(text []byte) error { return parsed("state", text) }

// object checks that a text is one JSON object.
func object(what string, text []byte) error {
	if err := parsed(what, text); err != nil {
		return err
	}
	if !bytes.HasPrefix(bytes.TrimLeft(text, " \t\r\n"), []byte("{")) {
		return ckpt.Errorf(ckpt.CodeInvalid, "the %s must be a JSON object", what)
	}
	return nil
}

// parsed checks that a text is strict JSON.
func parsed(what string, text []byte) error {
	if err := jsontext.Check(text); err != nil {
		return ckpt.Errorf(ckpt.CodeInvalid, "the %s is not JSON: %v", what, err)
	}
	return nil
}
