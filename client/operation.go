package client

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/google/uuid"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

// AllowOffline lets an operation begin while the daemon is away: see [OperationOptions].
const AllowOffline = "allow"

// OperationOptions are the options of an operation.
type OperationOptions struct {
	Name string // "" means the key
	Args any    // for the person who is asked if nobody knows how it ended
	// State is the state to go back to; nil means the run's newest state.
	State any
	// Idempotent says that the provider takes [Op.Key] as its idempotency key, so repeating is harmless: a resumed run
	// repeats the operation by itself.
	Idempotent bool
	// Check finds out whether an earlier attempt took effect. It is asked before a person is.
	Check func(context.Context, *Op) (Checked, error)
	// NotDone reports whether an error means that the operation did not happen, as for an ordinary refusal.
	NotDone func(error) bool
	// ResultSchema is the JSON Schema of the result, as JSON text or as a value. A person who says that the operation
	// happened must then give a result.
	ResultSchema any
	// Offline is AllowOffline if the operation may begin while the daemon is away. Then nobody knows whether it has
	// happened before, and it may happen twice. Otherwise it returns *Offline.
	Offline string
}

// Op is an attempt of an operation.
type Op struct {
	Key        string // give it to the provider as its idempotency key
	Attempt    int64  // 0 if it began while the daemon was away
	Done       bool   // it had succeeded before, and was not done now
	ResolvedBy string // who said what became of it: a person's identity, or check or agent; "" if its end was recorded at once
	Error      string // of an uncertain attempt: what is known of its end
}

// Checked is what a check has found out. The zero value means that it cannot tell.
type Checked struct {
	choice ckpt.PromptChoice
	result any
}

// ItDid says that the operation took effect, with its result, which can be nil.
func ItDid(result any) Checked { return Checked{ckpt.ChoiceItDid, result} }

// ItDidNot says that the operation did not take effect.
func ItDidNot() Checked { return Checked{choice: ckpt.ChoiceItDidNot} }

// NotDone marks the error of an operation: it is known that the operation did not happen. Every other error, a panic and
// the end of the process leave it uncertain.
func NotDone(err error) error { return ckpt.NotDone(err) }

// ErrNeedsOperator is what every *[NeedsOperator] is, for errors.Is.
var ErrNeedsOperator = errors.New("an operator must decide")

// NeedsOperator means that a run or an operation must not go on now: a person has to decide, or another process owns the
// run. Its text has three lines: what, what is known, and the command that helps. The plan has everything.
type NeedsOperator struct {
	Plan *ckpt.Plan
	Key  string // of the operation that was refused; "" if the run was

	refusal error // of the daemon
}

// Is reports whether target is ErrNeedsOperator.
func (e *NeedsOperator) Is(target error) bool { return target == ErrNeedsOperator }

func (e *NeedsOperator) Error() string {
	what, evidence, command := e.lines()
	return what + "\n" + evidence + "\n" + command
}

// shortID is enough of an id for a command.
const shortID = 13

func (e *NeedsOperator) lines() (what, evidence, command string) {
	p := e.Plan
	run := fmt.Sprintf("run %s of agent %s", p.Run, p.Agent)
	for i := range p.UncertainOperations {
		o := &p.UncertainOperations[i]
		if e.Key != o.Key && (e.Key != "" || p.Verdict != ckpt.VerdictAsk || !o.NeedsPerson()) {
			continue
		}
		what = fmt.Sprintf("Nobody knows whether operation %s of %s took effect: it is not repeated by itself.", o.Key, run)
		evidence = fmt.Sprintf("Attempt %d began at %s, and its end was never recorded.", o.Attempt, o.StartedAt)
		if o.Error != "" {
			evidence = fmt.Sprintf("Attempt %d began at %s: %s", o.Attempt, o.StartedAt, o.Error)
		}
		return what, oneLine(evidence), ckpt.ResolveCommand(p.Agent, p.Run, o.Key)
	}
	if e.refusal != nil { // the operation is of an earlier life of the run
		what = fmt.Sprintf("Operation %s of %s did not begin: nobody knows whether it took effect in an earlier life of the run.", e.Key, run)
		evidence, command, _ = strings.Cut(ckpt.AsError(e.refusal).Message, "then run: ")
		return what, oneLine(strings.TrimSuffix(strings.TrimSpace(evidence), "Find out whether it took effect,")), command
	}
	what = fmt.Sprintf("The %s cannot go on: the verdict is %s.", run, p.Verdict)
	if len(p.Reasons) > 0 {
		evidence = oneLine(p.Reasons[0])
	}
	command = "ckptsidecar run show " + p.Agent + " --run " + ckpt.ShellWord(p.Run)
	if p.Prompt != nil {
		command = "ckptsidecar prompts answer " + p.Prompt.ID[:min(len(p.Prompt.ID), shortID)] + " resume|reinitialize|abandon"
	}
	return what, evidence, command
}

// oneLine returns a text without line breaks, cut where it is too long for a message.
func oneLine(text string) string {
	const most = 400
	line := []rune(text)
	for i, r := range line {
		if r == '\n' || r == '\r' {
			line[i] = ' '
		}
	}
	if len(line) > most {
		line = append(line[:most], '…')
	}
	return string(line)
}

// Offline means that an operation did not begin, because the daemon is away, and only the daemon knows whether it has
// happened before. Start the daemon, or allow it with [OperationOptions].
type Offline struct {
	Key string
	Err error // why the daemon cannot be reached
}

func (e *Offline) Error() string {
	return fmt.Sprintf("operation %s did not begin: the daemon is away, and only the daemon knows whether the operation has happened before. "+
		"Start the daemon, or set Offline to allow for an operation that may happen twice: %v", e.Key, e.Err)
}

// Unwrap returns the cause.
func (e *Offline) Unwrap() error { return e.Err }

// OperationError is an operation that returned an error. It is uncertain, unless the error says that it was not done:
// then Restore is the checkpoint from before it, with its state, to go back to. Restore is nil if there is none, or if the
// daemon is away.
type OperationError struct {
	Key       string
	Err       error
	Uncertain bool // nobody knows whether it took effect: a person is asked, unless another way is declared
	Restore   *ckpt.Checkpoint
}

func (e *OperationError) Error() string {
	if e.Uncertain {
		return "operation " + e.Key + " is uncertain: " + e.Err.Error()
	}
	return "operation " + e.Key + " was not done: " + e.Err.Error()
}

// Unwrap returns the error of do.
func (e *OperationError) Unwrap() error { return e.Err }

// Operation runs an action that must not happen twice. key names it. If it succeeded before, Operation does not call do,
// and returns the stored result: see [Op.Done]. The result is the zero value if the person who said that it happened gave
// none. An error that is not marked with [NotDone], a panic or the end of this process leaves the operation uncertain.
// While it is uncertain, the error is a *[NeedsOperator]; while the daemon is away, it is an *[Offline].
func Operation[T any](ctx context.Context, r *Run, key string, do func(context.Context, *Op) (T, error), opts ...OperationOptions) (result T, op *Op, err error) {
	var o OperationOptions
	if len(opts) > 0 {
		o = opts[0]
	}
	op, before, err := r.beginOperation(ctx, key, &o)
	if err != nil {
		return result, op, err
	}
	if op.Done {
		if len(before) > 0 {
			if err := json.Unmarshal(before, &result); err != nil {
				return result, op, ckpt.Wrap(ckpt.CodeInvalid, err, "the stored result of operation %s does not fit into %T: %v", key, result, err)
			}
		}
		return result, op, nil
	}
	returned := false
	defer func() {
		if returned {
			return
		}
		p, evidence := recover(), errors.New("its goroutine ended")
		if p != nil {
			evidence = fmt.Errorf("panic: %v", p)
		}
		_, _ = r.endOperation(ctx, ckpt.OperationEnd{Key: key, Attempt: op.Attempt, Status: ckpt.OperationUncertain, Error: errorText(evidence)})
		if p != nil {
			panic(p)
		}
	}()
	result, failed := do(ctx, op)
	returned = true
	end := ckpt.OperationEnd{Key: key, Attempt: op.Attempt}
	if failed == nil {
		return result, op, r.succeed(ctx, end, result)
	}
	failure := &OperationError{Key: key, Err: failed, Uncertain: true}
	end.Status, end.Error = ckpt.OperationUncertain, errorText(fmt.Errorf("%T: %w", failed, failed))
	var not *ckpt.NotDoneError
	if errors.As(failed, &not) || o.NotDone != nil && o.NotDone(failed) {
		failure.Uncertain, end.Status, end.Error = false, ckpt.OperationFailed, errorText(failed)
	}
	ended, err := r.endOperation(ctx, end)
	if err != nil {
		failure.Err = joined(failed, err)
	}
	if ended != nil {
		failure.Restore = ended.Restore
	}
	return result, op, failure
}

// Operation is [Operation] for an action without a result. state is the state to go back to; nil means the run's newest
// state. done is false if the operation had succeeded before.
func (r *Run) Operation(ctx context.Context, key string, state any, do func(context.Context) error, opts ...OperationOptions) (done bool, err error) {
	var o OperationOptions
	if len(opts) > 0 {
		o = opts[0]
	}
	o.State = cmp.Or(o.State, state)
	_, op, err := Operation(ctx, r, key, func(ctx context.Context, _ *Op) (json.RawMessage, error) { return nil, do(ctx) }, o)
	return err == nil && !op.Done, err
}

// succeed records a success with its result.
func (r *Run) succeed(ctx context.Context, end ckpt.OperationEnd, result any) error {
	end.Status = ckpt.OperationSucceeded
	text, unwritable := json.Marshal(result)
	if unwritable == nil {
		end.Result = text
	}
	if _, err := r.endOperation(ctx, end); err != nil {
		return err
	}
	if unwritable != nil {
		return ckpt.Wrap(ckpt.CodeInvalid, unwritable, "operation %s succeeded, but its result cannot be written as JSON, so it is lost: %v", end.Key, unwritable)
	}
	return nil
}

// beginOperation begins an operation, or returns the stored result of one that succeeded before.
func (r *Run) beginOperation(ctx context.Context, key string, o *OperationOptions) (*Op, []byte, error) {
	request := ckpt.OperationRequest{Key: key, Name: cmp.Or(o.Name, key), Idempotent: o.Idempotent, SelfCheck: o.Check != nil,
		MayWait: o.Offline == AllowOffline, IdempotencyKey: uuid.NewString()}
	var err error
	if o.Offline != "" && o.Offline != AllowOffline {
		return nil, nil, ckpt.Errorf(ckpt.CodeInvalid, "Offline is %q: it is empty, or %q", o.Offline, AllowOffline)
	}
	if o.State != nil {
		if request.State, _, err = Encode(o.State); err != nil {
			return nil, nil, err
		}
	}
	if o.Args != nil {
		if request.Args, _, err = Encode(o.Args); err != nil {
			return nil, nil, err
		}
	}
	if request.ResultSchema, err = schemaText(o.ResultSchema); err != nil {
		return nil, nil, err
	}
	for resolved := false; ; {
		begun, _, err := r.Agent.client.wire.BeginOperation(ctx, r.ref(), request)
		switch {
		case err == nil:
			return r.begun(begun)
		case away(err) != nil:
			return r.begunWithoutDaemon(ctx, key, away(err))
		case ckpt.CodeOf(err) == ckpt.CodeUncertainOperation && !resolved:
			if err := r.resolveOperation(ctx, key, o, err); err != nil {
				return nil, nil, err
			}
			request.IdempotencyKey, resolved = uuid.NewString(), true
		default:
			return r.notBegun(ctx, request, err)
		}
	}
}

func (r *Run) begun(o *ckpt.Operation) (*Op, []byte, error) {
	r.noteDrift(o.Drift)
	op := &Op{Key: o.Key, Attempt: o.Attempt, Done: o.Status == ckpt.OperationSucceeded, ResolvedBy: string(o.ResolvedBy)}
	if op.Done {
		r.done.addOperation(o.Key, o.Result)
	}
	return op, given(o.Result), nil
}

// begunWithoutDaemon is for an operation that may begin while the daemon is away, and waits in the spool.
func (r *Run) begunWithoutDaemon(ctx context.Context, key string, why error) (*Op, []byte, error) {
	before, result, err := r.done.operation(key, why)
	if err != nil { // the spool has it as open, and nothing was done
		_, _ = r.endOperationIn(ctx, notBegunMost, ckpt.OperationEnd{Key: key, Status: ckpt.OperationFailed, Error: errorText(notBegun(err))})
		return nil, nil, err
	}
	return &Op{Key: key, Done: before}, result, nil
}

// notBegun returns the error of an operation that was not begun, or the result of one that this process knows to be done.
// The daemon may have begun it all the same, if its answer was lost. Then this attempt is ended as not done.
func (r *Run) notBegun(ctx context.Context, request ckpt.OperationRequest, err error) (*Op, []byte, error) {
	r.noteLost(err)
	var nobody *DialError
	var answer *ckpt.Error
	lost := !errors.As(err, &answer) || answer.OutcomeOrDefault() == ckpt.OutcomeUnknown
	if lost && !errors.As(err, &nobody) {
		late, cancel := within(context.WithoutCancel(ctx), notBegunMost)
		defer cancel()
		if o, _, again := r.Agent.client.wire.BeginOperation(late, r.ref(), request); again == nil && o.Status == ckpt.OperationOpen {
			_, _ = r.endOperationIn(ctx, notBegunMost, ckpt.OperationEnd{Key: o.Key, Attempt: o.Attempt, Status: ckpt.OperationFailed, Error: errorText(notBegun(err))})
		}
	}
	if !lost || ctx.Err() != nil {
		return nil, nil, err
	}
	if before, result, unknown := r.done.operation(request.Key, err); before && unknown == nil {
		return &Op{Key: request.Key, Done: true}, result, nil
	}
	return nil, nil, &Offline{request.Key, err}
}

// resolveOperation finds out what became of an uncertain attempt, with the check of the operation, else with that of the
// run. If neither can tell, it returns a *NeedsOperator.
func (r *Run) resolveOperation(ctx context.Context, key string, o *OperationOptions, refusal error) error {
	plan, _, err := r.Agent.client.wire.Resume(ctx, ckpt.ResumeRequest{Agent: r.Agent.Name, Run: r.Name, PID: os.Getpid(), DryRun: true})
	if err != nil {
		return err
	}
	page, err := r.Agent.client.wire.Operations(ctx, ckpt.RunRef{Agent: r.Agent.Name, Run: r.Name}, ckpt.ListFilter{Status: string(ckpt.OperationUncertain), Limit: ckpt.MaxLimit})
	if err != nil {
		return err
	}
	for i := range page.Operations {
		if a := &page.Operations[i]; a.Key == key {
			known, err := r.check(ctx, a, o.Check)
			if err != nil {
				return err
			}
			if known {
				return nil
			}
		}
	}
	return &NeedsOperator{Plan: plan, Key: key, refusal: refusal}
}

// check asks the checks about an attempt, and records what they know.
func (r *Run) check(ctx context.Context, a *ckpt.Operation, check func(context.Context, *Op) (Checked, error)) (known bool, err error) {
	op := &Op{Key: a.Key, Attempt: a.Attempt, Error: string(a.Error)}
	for _, ask := range []func(context.Context, *Op) (Checked, error){check, r.options.Resolve} {
		if ask == nil {
			continue
		}
		found, err := ask(ctx, op)
		if err == nil && found.choice != "" {
			resolution := ckpt.OperationResolution{Key: a.Key, Attempt: a.Attempt, Choice: found.choice, ByCheck: true}
			if found.result != nil {
				if resolution.Result, err = json.Marshal(found.result); err != nil {
					return false, ckpt.Wrap(ckpt.CodeInvalid, err, "what the check of operation %s returned cannot be written as JSON: %v", a.Key, err)
				}
			}
			_, _, err := r.Agent.client.wire.ResolveOperation(ctx, r.ref(), resolution)
			return err == nil, err
		}
		if r.epoch != nil { // a person is asked now
			evidence := "the check cannot tell"
			if err != nil {
				evidence = "the check failed: " + err.Error()
			}
			_, _ = r.endOperation(ctx, ckpt.OperationEnd{Key: a.Key, Attempt: a.Attempt, Status: ckpt.OperationUncertain, Error: errorText(errors.New(evidence))})
		}
	}
	return false, nil
}

// notBegunMost is how long the report may take that an operation was not begun: its caller has
// given up already.
const notBegunMost = 2 * time.Second

func (r *Run) endOperation(ctx context.Context, end ckpt.OperationEnd) (*ckpt.OperationEnded, error) {
	return r.endOperationIn(ctx, endMost, end)
}

// endOperationIn reports how an operation ended, even if its context ended.
func (r *Run) endOperationIn(ctx context.Context, most time.Duration, end ckpt.OperationEnd) (*ckpt.OperationEnded, error) {
	ctx, cancel := within(context.WithoutCancel(ctx), most)
	defer cancel()
	ended, _, err := r.Agent.client.wire.EndOperation(ctx, r.ref(), end)
	_, err = fate(err)
	r.noteLost(err)
	if end.Status == ckpt.OperationSucceeded {
		r.done.addOperation(end.Key, end.Result)
	}
	return ended, err
}
