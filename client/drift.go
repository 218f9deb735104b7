package client

import (
	"cmp"
	"context"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

// Drift returns the last verdict on the run's drift, without a request. The daemon sends the
// verdict with each save, step, operation and heartbeat.
func (r *Run) Drift() ckpt.DriftVerdict {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.drift
}

// OnDrift sets a function that is called when the verdict gets worse or a new finding appears. The
// goroutine that received the answer calls it, which may be the heartbeat's. f must not wait for
// the run.
func (r *Run) OnDrift(f func(ckpt.DriftVerdict)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.onDrift = append(r.onDrift, f)
}

// Report adds a finding of the agent itself. It fills in the run and the epoch.
func (r *Run) Report(ctx context.Context, f ckpt.FindingRequest) (*ckpt.PostedFinding, error) {
	f.Run, f.Epoch = r.Name, r.epoch
	f.Severity = cmp.Or(f.Severity, ckpt.SeverityWarn)
	ctx, cancel := r.Agent.client.forAnswer(ctx)
	defer cancel()
	posted, _, err := r.Agent.client.wire.PostFinding(ctx, r.Agent.Name, f)
	r.noteLost(err)
	if posted != nil {
		r.noteDrift(posted.Drift)
	}
	return posted, err
}

// Dismiss says that a finding was wrong, or has been dealt with. Checkpoints that were suspect only
// because of it are clean again.
func (r *Run) Dismiss(ctx context.Context, finding, reason string) (*ckpt.DismissedFinding, error) {
	ctx, cancel := r.Agent.client.forAnswer(ctx)
	defer cancel()
	dismissed, _, err := r.Agent.client.wire.Dismiss(ctx, ckpt.DismissRequest{ID: finding, Reason: reason})
	if dismissed != nil {
		r.noteDrift(dismissed.Drift)
	}
	return dismissed, err
}

// noteDrift stores the verdict of an answer. It is nil if the answer had none.
func (r *Run) noteDrift(v *ckpt.DriftVerdict) {
	if v == nil {
		return
	}
	r.mu.Lock()
	worse := v.Verdict.Rank() > r.drift.Verdict.Rank()
	r.drift = *v
	tell := r.onDrift
	r.mu.Unlock()
	if !worse && len(v.Findings) == 0 {
		return
	}
	for _, f := range tell {
		f(*v)
	}
}
