package client

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

// StepOptions are the options of a step.
type StepOptions struct {
	Name string // "" means the key without a counter, an id or a date at the end
	Args any    // the arguments, for the record and for finding loops
	// Turn is the id of the model's answer that made this call. Equal calls of one turn with
	// equal results count once for drift.
	Turn string
	// Negative reports whether the answer was no, for example a search that found nothing. That
	// is no error. It gets what do returned, and can be nil.
	Negative func(result any, err error) bool
}

// Step runs do once in the life of a run. If a step with this key succeeded before, Step does not
// call do and returns the stored result. The result must survive encoding as JSON. An error of do
// is recorded, and the step may be tried again.
func Step[T any](ctx context.Context, r *Run, key string, do func(context.Context) (T, error), opts ...StepOptions) (result T, err error) {
	var o StepOptions
	if len(opts) > 0 {
		o = opts[0]
	}
	before, err := r.beginStep(ctx, key, o)
	if err != nil {
		return result, err
	}
	if before != nil {
		if err := json.Unmarshal(before, &result); err != nil {
			return result, ckpt.Wrap(ckpt.CodeInvalid, err, "the stored result of step %s does not fit into %T: %v", key, result, err)
		}
		return result, nil
	}
	began := time.Now()
	result, failed := do(ctx)
	end := ckpt.StepRequest{Key: key, Status: ckpt.StepSucceeded}
	took := time.Since(began).Milliseconds()
	end.DurationMS = &took
	if o.Negative != nil && o.Negative(result, failed) {
		end.Outcome = ckpt.StepNegative
	}
	if failed != nil {
		end.Status, end.Error = ckpt.StepFailed, errorText(failed)
	} else if end.Result, err = json.Marshal(result); err != nil {
		return result, ckpt.Wrap(ckpt.CodeInvalid, err, "the result of step %s cannot be written as JSON, so it would be lost: %v", key, err)
	}
	if err := r.finishStep(ctx, end); err != nil {
		return result, joined(failed, err)
	}
	return result, failed
}

// beginStep returns the stored result of a step that was done before, or nil if the step must
// still be done.
func (r *Run) beginStep(ctx context.Context, key string, o StepOptions) ([]byte, error) {
	r.mu.Lock()
	result, known := r.results[key]
	r.mu.Unlock()
	if known {
		return result, nil
	}
	request := ckpt.StepRequest{Key: key, Name: o.Name, Turn: ckpt.Ref(o.Turn)}
	if o.Args != nil {
		var err error
		if request.Args, _, err = Encode(o.Args); err != nil {
			return nil, err
		}
	}
	step, _, err := r.Agent.client.wire.BeginStep(ctx, r.ref(), request)
	if why := away(err); why != nil {
		before, err := r.done.step(key, why)
		if err != nil { // the spool has it as begun
			_ = r.finishStep(ctx, ckpt.StepRequest{Key: key, Status: ckpt.StepFailed, Error: errorText(notBegun(err))})
		}
		return before, err
	}
	r.noteLost(err)
	if step != nil {
		r.noteDrift(step.Drift)
	}
	if err != nil || step.Status != ckpt.StepSucceeded {
		return nil, err
	}
	r.done.addStep(key, step.Result)
	if step.Result == nil {
		return []byte("null"), nil
	}
	return step.Result, nil
}

// finishStep reports how a step ended, even if its context ended.
func (r *Run) finishStep(ctx context.Context, end ckpt.StepRequest) error {
	ctx, cancel := within(context.WithoutCancel(ctx), endMost)
	defer cancel()
	step, _, err := r.Agent.client.wire.FinishStep(ctx, r.ref(), end)
	what, err := fate(err)
	r.noteLost(err)
	if step != nil {
		r.noteDrift(step.Drift)
	}
	switch {
	case err != nil || end.Status != ckpt.StepSucceeded:
	case what == Stored:
		r.done.addStep(end.Key, end.Result)
	default: // the daemon does not have the result yet
		r.mu.Lock()
		if r.results == nil {
			r.results = map[string][]byte{}
		}
		r.results[end.Key] = end.Result
		r.mu.Unlock()
	}
	return err
}

// errorText returns an error as text that the daemon takes: it may contain the output of a program.
func errorText(err error) ckpt.Ref {
	text := strings.ToValidUTF8(err.Error(), "\ufffd")
	if len(text) > ckpt.MaxText {
		text = strings.ToValidUTF8(text[:ckpt.MaxText-len("…")], "") + "…"
	}
	return ckpt.Ref(text)
}

func joined(first, second error) error {
	if first == nil {
		return second
	}
	return fmt.Errorf("%w (and it could not be recorded: %w)", first, second)
}

func notBegun(why error) error { return fmt.Errorf("it was not begun: %w", why) }
