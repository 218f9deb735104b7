package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

// The defaults of a run.
const (
	DefaultHeartbeat        = 10 * time.Second
	DefaultHeartbeatTimeout = 30 * time.Second
	endMost                 = 10 * time.Second // how long the end of a run may take after its context has ended
)

// RunOptions are the options for starting a run.
type RunOptions struct {
	Name             string // "" means the run for which "ckptsidecar exec" has started this process for the agent, else main
	Workflow, Goal   string
	ParentRun        string
	ExternalSession  string
	Labels           ckpt.Labels
	Heartbeat        time.Duration // how often; 0 means DefaultHeartbeat
	HeartbeatTimeout time.Duration // after this silence the run counts as frozen; 0 means DefaultHeartbeatTimeout; under exec, that of exec counts
	ProgressTimeout  time.Duration // the longest time without progress; 0 means the policy's
	Force            bool          // take the run over from a live owner
	Reason           string        // for the audit log
	// OnDrift is called when the run's verdict gets worse or there is a new finding: see [Run.OnDrift].
	OnDrift func(ckpt.DriftVerdict)
	// Resolve finds out what became of an uncertain operation whose own check is not declared or cannot tell. It is
	// asked before a person is.
	Resolve func(context.Context, *Op) (Checked, error)
}

// Run is one execution that this process owns. It sends heartbeats in the background until it ends.
type Run struct {
	Agent *Agent
	Name  string
	Plan  *ckpt.Plan // how the run continues; not claimed, and made from the spool, if the run began without a daemon

	options RunOptions
	epoch   *int64      // nil if the run began without a daemon
	handed  bool        // exec has claimed the run
	work    *background // heartbeats and autosaves

	mu       sync.Mutex
	lost     error // why this process is no longer the owner
	onLost   []func(error)
	drift    ckpt.DriftVerdict // the verdict of the last answer
	onDrift  []func(ckpt.DriftVerdict)
	progress *float64
	state    func() any
	ended    bool
	results  map[string][]byte // of steps that were done without a daemon
	done     done
	asked    map[string]string // for the words of each question, the last prompt that had an answer
}

// Start claims a new or unfinished run, and starts its heartbeats. The caller ends it with
// [Run.End]; [Agent.Run] does both. If "ckptsidecar exec" has claimed the run for this process, the
// run begins with that plan. With [Client.FailOpen] and without a daemon, the run goes on from its
// writes that wait in the spool. If these leave open whether an operation took effect, Start returns a
// *[NeedsOperator].
func (a *Agent) Start(ctx context.Context, o RunOptions) (*Run, error) {
	r := &Run{Agent: a, Name: cmp.Or(o.Name, usualRun(a.Name)), options: o, work: newBackground(), drift: ckpt.DriftVerdict{Verdict: ckpt.SeverityNone}}
	if o.OnDrift != nil {
		r.OnDrift(o.OnDrift)
	}
	sent, err := r.begin(ctx)
	switch {
	case err != nil && a.client.FailOpen && passes(err) && ctx.Err() == nil:
		if r.offline(err, sent); r.Plan.Verdict == ckpt.VerdictAsk {
			return nil, &NeedsOperator{Plan: r.Plan}
		}
		a.client.log().Warn("a run starts without the daemon", "agent", a.Name, "run", r.Name, "verdict", r.Plan.Verdict, "reasons", r.Plan.Reasons)
	case err != nil:
		return nil, err
	case !r.Plan.Claimed:
		return nil, &NeedsOperator{Plan: r.Plan}
	}
	if err := r.describe(ctx); err != nil {
		if !a.client.FailOpen || !passes(err) || ctx.Err() != nil {
			return nil, err
		}
		a.client.log().Warn("a run has no description, because the daemon went away at its start", "agent", a.Name, "run", r.Name, "error", err)
	}
	if r.epoch != nil && a.client.FailOpen {
		_ = a.client.delivery.tryToSend(ctx, func(ctx context.Context) error { r.done.learn(ctx, r); return nil })
	}
	if r.epoch != nil {
		a.client.replayOthers()
		every := cmp.Or(o.Heartbeat, DefaultHeartbeat)
		h := &heartbeat{wire: a.client.wire, run: r.ref(), most: every, progress: r.declared, told: r.noteLost, drift: r.noteDrift}
		r.work.every(context.Background(), every, h.beat)
	}
	return r, nil
}

// begin takes the plan of exec, or claims the run. It returns how many spooled writes it has sent.
func (r *Run) begin(ctx context.Context) (sent int, err error) {
	if plan := handedOver(r.Agent.Name, r.Name); plan != nil {
		r.Plan, r.epoch, r.handed = plan, &plan.Epoch, true
		return 0, nil
	}
	o := &r.options
	request := ckpt.ResumeRequest{Agent: r.Agent.Name, Run: r.Name, PID: os.Getpid(), Force: o.Force, Reason: o.Reason}
	request.HeartbeatTimeout, request.ProgressTimeout = o.timeouts()
	if sent, err = r.claim(ctx, request); err != nil || o.Resolve == nil || r.Plan.Verdict != ckpt.VerdictAsk {
		return sent, err
	}
	resolved := false
	for i := range r.Plan.UncertainOperations {
		if a := &r.Plan.UncertainOperations[i]; a.NeedsPerson() {
			known, err := r.check(ctx, a, nil)
			if err != nil {
				return sent, err
			}
			resolved = resolved || known
		}
	}
	if resolved {
		_, err = r.claim(ctx, request)
	}
	return sent, err
}

// timeouts returns the timeouts of a run that this process claims.
func (o *RunOptions) timeouts() (heartbeat, progress *ckpt.Duration) {
	if o.ProgressTimeout > 0 {
		progress = new(ckpt.Duration(o.ProgressTimeout))
	}
	return new(ckpt.Duration(cmp.Or(o.HeartbeatTimeout, DefaultHeartbeatTimeout))), progress
}

// claim sends the spooled writes of the run, and then asks how to continue. It returns how many it has
// sent.
func (r *Run) claim(ctx context.Context, request ckpt.ResumeRequest) (sent int, err error) {
	c := r.Agent.client
	return c.delivery.begin(ctx, r.Agent.Name, r.Name, func(ctx context.Context) error {
		plan, _, err := c.wire.Resume(ctx, request)
		if err == nil {
			r.Plan, r.epoch = plan, &plan.Epoch
		}
		return err
	})
}

// describe tells the daemon what the run is for, if the options say it.
func (r *Run) describe(ctx context.Context) error {
	o := &r.options
	says := o.Workflow != "" || o.Goal != "" || o.ParentRun != "" || o.ExternalSession != "" || len(o.Labels) > 0 ||
		r.handed && o.ProgressTimeout > 0
	if r.epoch == nil || !says {
		return nil
	}
	q := ckpt.RunRequest{Agent: r.Agent.Name, Run: r.Name, PID: os.Getpid(), Epoch: r.epoch,
		Workflow: ckpt.Ref(o.Workflow), Goal: ckpt.Ref(o.Goal),
		ParentRun: ckpt.Ref(o.ParentRun), ExternalSession: ckpt.Ref(o.ExternalSession), Labels: o.Labels}
	q.HeartbeatTimeout, q.ProgressTimeout = o.timeouts()
	if r.handed {
		q.HeartbeatTimeout = nil // that of exec, which sends heartbeats too
	}
	return r.Agent.client.delivery.tryToSend(ctx, func(ctx context.Context) error {
		_, _, err := r.Agent.client.wire.StartRun(ctx, q)
		return err
	})
}

func (r *Run) ref() ckpt.RunRef {
	return ckpt.RunRef{Agent: r.Agent.Name, Run: r.Name, Epoch: r.epoch}
}

// Lost returns the reason why this process no longer owns the run. It is nil while the process owns
// it.
func (r *Run) Lost() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.lost
}

// noteLost records that another owner has taken over the run.
func (r *Run) noteLost(err error) {
	if ckpt.CodeOf(err) != ckpt.CodeFenced {
		return
	}
	r.mu.Lock()
	first := r.lost == nil
	if first {
		r.lost = err
	}
	tell := r.onLost
	r.mu.Unlock()
	if first {
		for _, f := range tell {
			f(err)
		}
	}
}

// declared returns the progress that was declared last, or nil if there is none.
func (r *Run) declared() *float64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.progress
}

// Restore reads the state to continue from into v. It returns false if there is none, because the
// run is new.
func (r *Run) Restore(v any) (bool, error) {
	if r.Plan.Checkpoint == nil {
		return false, nil
	}
	return true, decodeState(r.Plan.Checkpoint, v)
}

// Save saves a state of the run.
func (r *Run) Save(ctx context.Context, state any, opts ...SaveOptions) (*Saved, error) {
	o := SaveOptions{}
	if len(opts) > 0 {
		o = opts[0]
	}
	o.Run, o.epoch = r.Name, r.epoch
	saved, err := r.Agent.Save(ctx, state, o)
	r.noteLost(err)
	if saved != nil {
		r.noteDrift(saved.Drift)
	}
	return saved, err
}

// Progress declares the progress of the run. It should only grow. The next heartbeat reports it.
func (r *Run) Progress(p float64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.progress = &p
}

// Event adds a line to the run's journal.
func (r *Run) Event(ctx context.Context, kind string, payload any) error {
	body, _, err := Encode(payload)
	if err != nil {
		return err
	}
	_, _, err = r.Agent.client.wire.Append(ctx, r.ref(), []ckpt.NewEvent{{Type: kind, Payload: body}}, "")
	_, err = fate(err)
	r.noteLost(err)
	return err
}

// State sets the function that returns the run's state. Autosaves use it, and the last save when
// the process is told to end or an error ends the run. get is called from other goroutines.
func (r *Run) State(get func() any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.state = get
}

// End ends a run as completed, failed, suspended, awaiting_continuation or interrupted. All but the
// first two can be resumed. If that fails, End may be called again.
func (r *Run) End(ctx context.Context, e ckpt.EndRequest) error {
	r.mu.Lock()
	ended := r.ended
	r.ended = true
	r.mu.Unlock()
	if ended {
		return nil
	}
	r.work.stop()
	_, _, err := r.Agent.client.wire.EndRun(ctx, r.ref(), e)
	_, err = fate(err)
	r.noteLost(err)
	if err != nil {
		r.mu.Lock()
		r.ended = false
		r.mu.Unlock()
	}
	return err
}

// ErrInterrupted is the cause with which the context of [Agent.Run] ends when the process is told
// to end.
var ErrInterrupted = errors.New("the process was told to end")

// Run claims a run, sends heartbeats, calls do, and ends the run. The run is completed if do
// returns nil. After an error, a panic, SIGTERM or an interrupt it is interrupted, and can be
// resumed. Before that, Run saves a recovery checkpoint, if [Run.State] was called. The context of
// do ends when the process is told to end, or when another owner takes over the run. A run over an uncertain operation is
// not completed: it is interrupted, and the error is a *[NeedsOperator].
func (a *Agent) Run(ctx context.Context, o RunOptions, do func(context.Context, *Run) error) (err error) {
	r, err := a.Start(ctx, o)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	r.mu.Lock()
	r.onLost = append(r.onLost, cancel)
	r.mu.Unlock()
	told := make(chan os.Signal, 1)
	signal.Notify(told, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(told)
	go func() {
		select {
		case <-told:
			cancel(ErrInterrupted)
		case <-ctx.Done():
		}
	}()
	defer func() {
		if p := recover(); p != nil {
			r.giveUp(fmt.Errorf("panic: %v", p))
			panic(p)
		}
	}()
	if err = do(ctx, r); err == nil && context.Cause(ctx) != nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		return errors.Join(err, r.giveUp(err))
	}
	if err = r.End(ctx, ckpt.EndRequest{Status: ckpt.RunCompleted}); ckpt.CodeOf(err) != ckpt.CodeUncertainOperation {
		return err
	}
	needs := err
	if plan, _, looked := a.client.wire.Resume(ctx, ckpt.ResumeRequest{Agent: a.Name, Run: r.Name, PID: os.Getpid(), DryRun: true}); looked == nil && len(plan.UncertainOperations) > 0 {
		needs = &NeedsOperator{Plan: plan, Key: plan.UncertainOperations[0].Key}
	}
	return errors.Join(needs, r.giveUp(needs))
}

// giveUp ends the run as interrupted, so that it can be resumed.
func (r *Run) giveUp(why error) error {
	ctx, cancel := within(context.Background(), endMost)
	defer cancel()
	if r.Lost() != nil {
		r.work.stop()
		return nil // another process owns the run
	}
	r.mu.Lock()
	get, ended := r.state, r.ended
	r.mu.Unlock()
	if ended {
		return nil
	}
	var saving error
	if get != nil {
		_, saving = r.Save(ctx, get(), SaveOptions{Kind: ckpt.KindRecovery})
	}
	return errors.Join(saving, r.End(ctx, ckpt.EndRequest{Status: ckpt.RunInterrupted, Error: errorText(why)}))
}
