package ckptsidecar

import (
	"database/sql/driver"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// PromptKind says who asks: the daemon for a decision, or a run.
type PromptKind string

// The kinds of prompts.
const (
	PromptDecision  PromptKind = "decision"  // the daemon asks how to continue a run
	PromptQuestion  PromptKind = "question"  // the run itself asks while it works
	PromptOperation PromptKind = "operation" // the daemon asks whether an attempt of an operation took effect
)

// PromptStatus reports whether a prompt can still be answered.
type PromptStatus string

// The statuses of a prompt.
const (
	PromptOpen      PromptStatus = "open"
	PromptAnswered  PromptStatus = "answered"
	PromptExpired   PromptStatus = "expired"   // nobody answered in time
	PromptWithdrawn PromptStatus = "withdrawn" // the run continued or ended without an answer
)

// PromptChoice is an operator's answer.
type PromptChoice string

// The answers to a decision.
const (
	ChoiceResume       PromptChoice = "resume"
	ChoiceReinitialize PromptChoice = "reinitialize"
	ChoiceAbandon      PromptChoice = "abandon"
)

// The answers to a question about an operation.
const (
	ChoiceItDid    PromptChoice = "it_did"     // it took effect
	ChoiceItDidNot PromptChoice = "it_did_not" // it did not, and may be begun again
	ChoiceRepeat   PromptChoice = "repeat"     // nobody knows, and it may happen twice
)

// OperationChoices are the answers to a question about an operation.
var OperationChoices = Choices{string(ChoiceItDid), string(ChoiceItDidNot), string(ChoiceRepeat)}

// Prompt is a question to a person.
type Prompt struct {
	ID         string       `json:"id" db:"id"`
	Kind       PromptKind   `json:"kind" db:"kind"`
	Status     PromptStatus `json:"status" db:"-"`
	Agent      string       `json:"agent" db:"agent"`
	Owner      string       `json:"owner" db:"owner"`
	Run        string       `json:"run" db:"run"`
	Key        Ref          `json:"key" db:"key"`             // of a question: asked again with this key, it is the same prompt
	Operation  Ref          `json:"operation" db:"operation"` // the key of the operation that the prompt is about
	Attempt    int64        `json:"attempt,omitempty" db:"attempt"`
	At         Time         `json:"at" db:"at"`
	Question   string       `json:"question" db:"question"`
	Reason     string       `json:"reason" db:"reason"`
	Choices    Choices      `json:"choices" db:"choices"`       // the only answers; null if any is allowed
	Schema     JSON         `json:"schema" db:"schema"`         // the JSON Schema of the data, for an operation with it_did
	ExpiresAt  Time         `json:"expires_at" db:"expires_at"` // for a question: after this time it cannot be answered
	Checkpoint Ref          `json:"checkpoint" db:"checkpoint"`
	MemoryDiff JSON         `json:"memory_diff" db:"memory_diff"` // what reinitialize would lose
	Choice     Ref          `json:"choice" db:"choice"`           // for a decision a PromptChoice; null while unanswered
	Data       JSON         `json:"data" db:"data"`               // for a question: the data of the answer
	AnsweredAt Time         `json:"answered_at" db:"answered_at"`
	AnsweredBy Ref          `json:"answered_by" db:"answered_by"`
}

// HasSchema reports whether the data of the answer must fit a schema. A client reads a missing schema as the JSON
// value null.
func (p *Prompt) HasSchema() bool { return len(p.Schema) > 0 && string(p.Schema) != "null" }

// StatusAt returns the prompt's status at a moment. daemon is the name in answered_by if the daemon has withdrawn
// the prompt.
func (p *Prompt) StatusAt(now Time, daemon string) PromptStatus {
	switch {
	case !p.AnsweredAt.IsZero() && string(p.AnsweredBy) == daemon:
		return PromptWithdrawn
	case !p.AnsweredAt.IsZero():
		return PromptAnswered
	case !p.ExpiresAt.IsZero() && !now.Before(p.ExpiresAt.Time):
		return PromptExpired
	}
	return PromptOpen
}

// Choices are the possible answers to a question.
type Choices []string

// The limits of a question and its answer.
const (
	MaxChoices = 32
	MaxChoice  = 128      // bytes of one
	MaxAnswer  = 64 << 10 // bytes of the data that comes with an answer
	maxExpires = Duration(366 * Day)

	// MaxWait is the longest time that one request can wait for an answer.
	MaxWait = Duration(10 * time.Minute)
)

// MarshalJSON writes an array, or null for none.
func (c Choices) MarshalJSON() ([]byte, error) {
	if c == nil {
		return []byte("null"), nil
	}
	return json.Marshal([]string(c))
}

// Value stores the JSON array, or NULL.
func (c Choices) Value() (driver.Value, error) {
	if c == nil {
		return nil, nil
	}
	b, err := json.Marshal([]string(c))
	return string(b), err
}

// Scan reads a stored JSON array.
func (c *Choices) Scan(v any) error {
	*c = nil
	switch v := v.(type) {
	case nil:
		return nil
	case string:
		return json.Unmarshal([]byte(v), (*[]string)(c))
	}
	return fmt.Errorf("stored choices are %T, not text", v)
}

// String lists the choices for a sentence.
func (c Choices) String() string {
	if len(c) < 2 {
		return strings.Join(c, "")
	}
	return strings.Join(c[:len(c)-1], ", ") + " or " + c[len(c)-1]
}

// CheckChoices refuses a text that is not a JSON array of choices.
func CheckChoices(text string) error {
	var c Choices
	if err := json.Unmarshal([]byte(text), (*[]string)(&c)); err != nil || c == nil {
		return Errorf(CodeInvalid, "the choices are not an array of strings")
	}
	return c.check()
}

func (c Choices) check() error {
	if len(c) > MaxChoices {
		return Errorf(CodeInvalid, "a question has %d choices: at most %d are allowed", len(c), MaxChoices)
	}
	for i, choice := range c {
		if err := checkChoice(choice); err != nil {
			return err
		}
		if choice == "" {
			return Errorf(CodeInvalid, "a choice is empty: give it some text")
		}
		if slices.Contains(c[:i], choice) {
			return Errorf(CodeInvalid, "the choice %q is listed twice", choice)
		}
	}
	return nil
}

func checkChoice(choice string) error {
	switch {
	case len(choice) > MaxChoice:
		return Errorf(CodeInvalid, "a choice is %d bytes long: at most %d are allowed", len(choice), MaxChoice)
	case !utf8.ValidString(choice) || strings.ContainsFunc(choice, func(r rune) bool { return r < ' ' || r == 0x7f }):
		return Errorf(CodeInvalid, "a choice has characters that cannot be shown")
	}
	return nil
}

// QuestionRequest asks a person a question during a run.
type QuestionRequest struct {
	Agent    string   `json:"-"`
	Run      string   `json:"-"`
	Epoch    *int64   `json:"epoch,omitempty"`
	Key      string   `json:"key,omitempty"` // the same at each attempt: asked again with this key, it is the same prompt
	Question string   `json:"question"`
	Reason   string   `json:"reason,omitempty"`  // why the run asks, for the person
	Choices  Choices  `json:"choices,omitempty"` // empty: any answer is allowed
	Schema   JSON     `json:"schema,omitempty"`  // of the data of the answer; if absent, any data is allowed
	Expires  Duration `json:"expires,omitempty"` // from now; 0 for never
	Suspend  bool     `json:"suspend,omitempty"` // if there is no answer yet, the run is suspended until it is resumed
	// After is for a question without a key: the earlier prompt with the same text whose answer this process already
	// has.
	After          string `json:"after,omitempty"`
	IdempotencyKey string `json:"-"`
}

// Check refuses an invalid question.
func (r *QuestionRequest) Check() error {
	if err := CheckAgentName(r.Agent); err != nil {
		return err
	}
	if err := optional(r.Run, CheckRunName); err != nil {
		return err
	}
	switch {
	case strings.TrimSpace(r.Question) == "":
		return Errorf(CodeInvalid, "the question is empty: describe what a person has to decide")
	case r.Expires < 0 || r.Expires > maxExpires:
		return Errorf(CodeInvalid, "expires is %s: give how long the question may be answered, at most %s, or 0 for no end", r.Expires, maxExpires)
	case len(r.Schema) > MaxSchema:
		return Errorf(CodeTooLarge, "the schema is %d bytes long: at most %d are allowed", len(r.Schema), MaxSchema)
	case r.Key != "" && r.After != "":
		return Errorf(CodeInvalid, "after is for questions without a key")
	}
	checks := []func() error{
		func() error { return checkLong("question", r.Question) },
		func() error { return CheckReason(r.Reason) },
		func() error { return optional(r.Key, func(key string) error { return CheckKey("key", key) }) },
		func() error { return optional(r.After, CheckID) },
		r.Choices.check,
	}
	for _, check := range checks {
		if err := check(); err != nil {
			return err
		}
	}
	return nil
}

// PromptAnswer is a person's answer.
type PromptAnswer struct {
	ID             string       `json:"-"`
	Choice         PromptChoice `json:"choice,omitempty"`
	Data           JSON         `json:"data,omitempty"`            // with the answer to a question; for an operation, with it_did, its result
	LeaveUncertain bool         `json:"leave_uncertain,omitempty"` // with reinitialize or abandon: although an operation is uncertain; needs a reason
	Reason         string       `json:"reason,omitempty"`          // for the audit log
	IdempotencyKey string       `json:"-"`
}

// Check refuses an invalid answer.
func (a *PromptAnswer) Check() error {
	if err := CheckID(a.ID); err != nil {
		return err
	}
	if a.Choice == "" && len(a.Data) == 0 {
		return Errorf(CodeInvalid, "the answer is empty: give a choice, data, or both")
	}
	if len(a.Data) > MaxAnswer {
		return Errorf(CodeTooLarge, "the data is %d bytes long: at most %d are allowed", len(a.Data), MaxAnswer)
	}
	if err := checkChoice(string(a.Choice)); err != nil {
		return err
	}
	return checkLeaving(a.LeaveUncertain, a.Reason)
}

// CheckFor refuses an answer that the prompt does not allow. It does not check the data against the
// schema.
func (a *PromptAnswer) CheckFor(p *Prompt) error {
	if p.Kind == PromptQuestion {
		switch {
		case p.Choices != nil && !slices.Contains(p.Choices, string(a.Choice)):
			return Errorf(CodeInvalid, "choice %q is not allowed: it is %s", cut(string(a.Choice)), p.Choices)
		case p.Schema != nil && len(a.Data) == 0:
			return Errorf(CodeInvalid, "the question asks for data: give data that matches its schema")
		}
		return nil
	}
	if p.Kind == PromptOperation {
		switch {
		case !a.Choice.OfOperation():
			return Errorf(CodeInvalid, "choice %q does not answer whether operation %s took effect: it must be it_did, it_did_not or repeat",
				cut(string(a.Choice)), p.Operation)
		case len(a.Data) > 0 && a.Choice != ChoiceItDid:
			return Errorf(CodeInvalid, "data is the result of the operation, and goes with it_did only: leave data out")
		}
		return nil
	}
	if len(a.Data) > 0 {
		return Errorf(CodeInvalid, "this prompt is a decision, and its answer has no data: leave data out")
	}
	switch a.Choice {
	case ChoiceResume, ChoiceReinitialize, ChoiceAbandon:
		return nil
	}
	return Errorf(CodeInvalid, "choice %q does not answer how to go on with a run: it must be resume, reinitialize or abandon", cut(string(a.Choice)))
}

// PromptFilter chooses prompts, newest first.
type PromptFilter struct {
	Open   bool // only those without an answer
	Before string
	Limit  int
}

// PromptPage is one page of prompts.
type PromptPage struct {
	Prompts []Prompt `json:"prompts"`
	Next    Ref      `json:"next"`
}
