package ckptsidecar

import (
	"fmt"
	"strings"
)

// OperationStatus is the status of one attempt of an operation.
type OperationStatus string

// The statuses of an attempt. Failed means: known not to have happened.
const (
	OperationOpen       OperationStatus = "open"
	OperationSucceeded  OperationStatus = "succeeded"
	OperationFailed     OperationStatus = "failed"
	OperationUncertain  OperationStatus = "uncertain"  // nobody knows whether it took effect
	OperationSuperseded OperationStatus = "superseded" // it was uncertain, and is to be repeated
)

// Operation is one attempt of an action that must not happen twice. It began with a pre_operation checkpoint.
type Operation struct {
	Key          string          `json:"key" db:"key"`
	Name         string          `json:"name" db:"name"`
	Attempt      int64           `json:"attempt" db:"attempt"`
	Status       OperationStatus `json:"status" db:"status"`
	Args         JSON            `json:"args" db:"args"`                   // for the person who is asked
	Idempotent   bool            `json:"idempotent" db:"idempotent"`       // repeating it with the same key is harmless
	SelfCheck    bool            `json:"check" db:"self_check"`            // its code can find out whether it took effect
	ResultSchema JSON            `json:"result_schema" db:"result_schema"` // JSON Schema of the result that a person gives
	Checkpoint   Ref             `json:"checkpoint" db:"checkpoint"`       // the pre_operation checkpoint; null if the run had no state yet
	StartedAt    Time            `json:"started_at" db:"started_at"`
	EndedAt      Time            `json:"ended_at" db:"ended_at"` // when it succeeded, failed or became uncertain
	Result       JSON            `json:"result" db:"result"`
	Error        Ref             `json:"error" db:"error"`           // why it was not done, or what left it uncertain
	Resolution   Ref             `json:"resolution" db:"resolution"` // it_did, it_did_not or repeat; null if nobody resolved it
	ResolvedAt   Time            `json:"resolved_at" db:"resolved_at"`
	ResolvedBy   Ref             `json:"resolved_by" db:"resolved_by"` // an identity, ResolvedByCheck or ResolvedByRepeat
	Left         bool            `json:"left_uncertain" db:"left_uncertain"`
	Prompt       Ref             `json:"prompt" db:"prompt"` // the open question about it
	Replayed     bool            `json:"replayed" db:"-"`    // it succeeded before: do not run it again
	// Drift is only in the answer to the start of the operation, which is a save.
	Drift *DriftVerdict `json:"drift,omitempty" db:"-"`
	// Durability is only in the answers to writes.
	Durability Durability `json:"durability,omitempty" db:"-"`
}

// Who resolved an operation if it was no person.
const (
	ResolvedByCheck  = "check"      // the check of the agent's own code
	ResolvedByOwner  = "agent"      // the code that had begun it learned late how it ended
	ResolvedByRepeat = "idempotent" // the agent repeated it, because that is harmless
)

// Unresolved reports whether nobody knows yet how the attempt ends.
func (o *Operation) Unresolved() bool {
	return o.Status == OperationOpen || o.Status == OperationUncertain
}

// NeedsPerson reports whether the run cannot go on before a person has resolved the attempt.
func (o *Operation) NeedsPerson() bool {
	return o.Unresolved() && !o.Left && !o.Idempotent && (!o.SelfCheck || o.Prompt != "")
}

// OperationEnded is the answer to the end of an operation.
type OperationEnded struct {
	Operation
	Released []string    `json:"released"`          // the pre_operation checkpoints that its success released
	Restore  *Checkpoint `json:"restore,omitempty"` // after a failure: the pre_operation checkpoint with its state
}

// OperationRequest begins an operation.
type OperationRequest struct {
	Key            string `json:"key"`
	Name           string `json:"name"`
	Epoch          *int64 `json:"epoch,omitempty"`
	Args           JSON   `json:"args,omitempty"`
	Idempotent     bool   `json:"idempotent,omitempty"`
	SelfCheck      bool   `json:"check,omitempty"` // the agent's code can find out whether it took effect
	ResultSchema   JSON   `json:"result_schema,omitempty"`
	State          JSON   `json:"state,omitempty"` // the state to go back to; if absent, the newest state of the run
	Labels         Labels `json:"labels,omitempty"`
	MayWait        bool   `json:"-"` // a client may keep it until the daemon is back; else it begins with the daemon or not at all
	IdempotencyKey string `json:"-"`
}

// Check refuses an invalid request.
func (r *OperationRequest) Check() error {
	if err := CheckKey("operation key", r.Key); err != nil {
		return err
	}
	if err := CheckKey("operation name", r.Name); err != nil {
		return err
	}
	if len(r.ResultSchema) > MaxSchema {
		return Errorf(CodeTooLarge, "the result_schema is %d bytes long: at most %d are allowed", len(r.ResultSchema), MaxSchema)
	}
	return CheckLabels(r.Labels)
}

// OperationEnd is how the code that began an operation says that it ended: succeeded, failed (known not to have happened),
// or uncertain.
type OperationEnd struct {
	Key            string          `json:"-"`
	Epoch          *int64          `json:"epoch,omitempty"`
	Attempt        int64           `json:"attempt,omitempty"` // as it began; 0: the newest, which must be open
	Status         OperationStatus `json:"status,omitempty"`
	Result         JSON            `json:"result,omitempty"`
	Error          Ref             `json:"error,omitempty"` // why it was not done, or the type and text of the exception
	IdempotencyKey string          `json:"-"`
}

// Check refuses an invalid request.
func (r *OperationEnd) Check() error {
	if err := CheckKey("operation key", r.Key); err != nil {
		return err
	}
	switch r.Status {
	case OperationSucceeded, OperationFailed, OperationUncertain:
	default:
		return Errorf(CodeInvalid, "an operation ends with status succeeded, failed or uncertain, not %q", cut(string(r.Status)))
	}
	if r.Attempt < 0 {
		return Errorf(CodeInvalid, "attempt is %d: give the number of an attempt, or leave it out", r.Attempt)
	}
	return checkLong("error", string(r.Error))
}

// OperationResolution says what became of an uncertain attempt. A person sends it, or the check of the agent's code.
type OperationResolution struct {
	Key            string       `json:"-"`
	Attempt        int64        `json:"attempt,omitempty"` // 0: the newest attempt that is uncertain
	Choice         PromptChoice `json:"choice"`            // it_did, it_did_not or repeat
	Result         JSON         `json:"result,omitempty"`  // with it_did: what came out
	Reason         string       `json:"reason,omitempty"`  // how it is known, for the audit log
	ByCheck        bool         `json:"check,omitempty"`   // the check of the agent's code says so
	IdempotencyKey string       `json:"-"`
}

// Check refuses an invalid resolution.
func (r *OperationResolution) Check() error {
	if err := CheckKey("operation key", r.Key); err != nil {
		return err
	}
	switch {
	case r.Attempt < 0:
		return Errorf(CodeInvalid, "attempt is %d: give the number of an attempt, or leave it out", r.Attempt)
	case !r.Choice.OfOperation():
		return Errorf(CodeInvalid, "choice %q cannot resolve an operation: use it_did, it_did_not or repeat", cut(string(r.Choice)))
	case len(r.Result) > 0 && r.Choice != ChoiceItDid:
		return Errorf(CodeInvalid, "a result goes with it_did only: leave it out, or choose it_did")
	case r.ByCheck && r.Choice == ChoiceRepeat:
		return Errorf(CodeInvalid, "a check finds out whether the operation took effect: it answers it_did or it_did_not")
	}
	return CheckReason(r.Reason)
}

// Status is the status that a choice gives to an uncertain attempt.
func (c PromptChoice) Status() OperationStatus {
	switch c {
	case ChoiceItDid:
		return OperationSucceeded
	case ChoiceItDidNot:
		return OperationFailed
	}
	return OperationSuperseded
}

// OfOperation reports whether the choice answers a question about an operation.
func (c PromptChoice) OfOperation() bool {
	return c == ChoiceItDid || c == ChoiceItDidNot || c == ChoiceRepeat
}

// checkLeaving refuses to leave an operation uncertain without a reason.
func checkLeaving(leave bool, reason string) error {
	if leave && strings.TrimSpace(reason) == "" {
		return Errorf(CodeInvalid, "leave_uncertain has no reason: say in reason why an operation may stay uncertain")
	}
	return CheckReason(reason)
}

// OperationPage is one page of operations, newest first.
type OperationPage struct {
	Operations []Operation `json:"operations"`
	Next       Ref         `json:"next"`
}

// ResolveCommand is the command with which a person resolves an operation.
func ResolveCommand(agent, run, key string) string {
	command := "ckptsidecar operation resolve " + agent + " " + ShellWord(key) + " it_did|it_did_not|repeat"
	if run != "" && run != MainRun {
		command += " --run " + ShellWord(run)
	}
	return command
}

// ShellWord quotes a text for a shell, if it needs quotes.
func ShellWord(word string) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("._-:/@%+=,", r)
	}
	if word != "" && strings.IndexFunc(word, func(r rune) bool { return !plain(r) }) < 0 {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

// UncertainError refuses an act that would hide or repeat an attempt that nobody has resolved. because says what is
// refused, and command how to resolve the attempt.
func UncertainError(because, run string, o *Operation, now Time, command string) *Error {
	what := fmt.Sprintf("operation %s of run %s, attempt %d, is %s: it began %s ago", o.Key, run, o.Attempt, o.Status, Age(now.Sub(o.StartedAt.Time)))
	next := "Find out whether it took effect, then run: " + command
	if o.Status == OperationOpen {
		what += ", and its code has not ended it"
		next = "End it, or wait until its owner is gone and run: " + command
	} else {
		what += ", and nobody knows whether it took effect"
	}
	return Errorf(CodeUncertainOperation, "%s: %s. %s", because, what, next)
}
