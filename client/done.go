package client

import (
	"context"
	"errors"
	"fmt"
	"sync"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

const (
	doneMost  = 32 << 20 // bytes of results that a run keeps; the daemon or the spool has them all
	donePages = 5        // of a resumed run's steps, and of its operations, that are read
)

// done is what this process knows of the steps and operations of a run that succeeded. While the
// daemon is away, nobody else can say what must not be done again.
type done struct {
	mu         sync.Mutex
	held       int
	steps      map[string][]byte // the results, or nil for those that this process has not kept
	operations map[string][]byte // likewise
	partly     bool              // others may have succeeded too
}

func (d *done) addStep(key string, result []byte) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.steps == nil {
		d.steps = map[string][]byte{}
	}
	if result == nil {
		result = []byte("null")
	}
	d.held -= len(d.steps[key])
	if d.held+len(result) > doneMost {
		result = nil
	}
	d.held += len(result)
	d.steps[key] = result
}

func (d *done) addOperation(key string, result []byte) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.operations == nil {
		d.operations = map[string][]byte{}
	}
	d.held -= len(d.operations[key])
	if d.held+len(result) > doneMost {
		result = nil
	}
	d.held += len(result)
	d.operations[key] = result
}

// forget forgets everything, because the run has ended and begins anew.
func (d *done) forget() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.held, d.steps, d.operations, d.partly = 0, nil, nil, false
}

// step returns the result of a step that was done before, or nil if it must still be done. It
// returns an error if only the daemon knows. why is the reason why the daemon cannot be asked.
func (d *done) step(key string, why error) ([]byte, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	result, known := d.steps[key]
	switch {
	case known && result == nil:
		return nil, fmt.Errorf("step %s was done before, but only the daemon can give its result: %w", key, why)
	case !known && d.partly:
		return nil, fmt.Errorf("it is not known whether step %s was done before: %w", key, why)
	}
	return result, nil
}

// operation reports whether an operation was done before, with its result. It returns an error if only the daemon
// knows.
func (d *done) operation(key string, why error) (bool, []byte, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	result, known := d.operations[key]
	if !known && d.partly {
		return false, nil, fmt.Errorf("it is not known whether operation %s was done before: %w", key, why)
	}
	return known, result, nil
}

// learn reads what earlier processes of a resumed run have done.
func (d *done) learn(ctx context.Context, r *Run) {
	for i := range r.Plan.CompletedSteps {
		d.addStep(r.Plan.CompletedSteps[i].Key, r.Plan.CompletedSteps[i].Result)
	}
	if r.Plan.Verdict == ckpt.VerdictFresh {
		return
	}
	wire, ref := r.Agent.client.wire, r.ref()
	steps := func(f ckpt.ListFilter) (ckpt.Ref, error) {
		page, err := wire.Steps(ctx, ref, f)
		if err != nil {
			return "", err
		}
		for i := range page.Steps {
			d.addStep(page.Steps[i].Key, page.Steps[i].Result)
		}
		return page.Next, nil
	}
	operations := func(f ckpt.ListFilter) (ckpt.Ref, error) {
		page, err := wire.Operations(ctx, ref, f)
		if err != nil {
			return "", err
		}
		for i := range page.Operations {
			d.addOperation(page.Operations[i].Key, given(page.Operations[i].Result))
		}
		return page.Next, nil
	}
	d.partly = !all(steps, string(ckpt.StepSucceeded)) || !all(operations, string(ckpt.OperationSucceeded))
}

// all reads the pages of a list, and returns whether it has read all of them.
func all(read func(ckpt.ListFilter) (ckpt.Ref, error), status string) bool {
	f := ckpt.ListFilter{Status: status, Limit: ckpt.MaxLimit}
	for range donePages {
		next, err := read(f)
		if err != nil {
			return false
		}
		if next == "" {
			return true
		}
		f.Before = string(next)
	}
	return false
}

// away returns why a write is not with the daemon, or nil if it is.
func away(err error) error {
	var kept *KeptError
	switch {
	case errors.As(err, &kept):
		return kept.Err
	case errors.Is(err, errDropped):
		return err
	}
	return nil
}
