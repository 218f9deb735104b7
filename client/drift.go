package client

import (
	"cmp"
	"context"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

// Drift is the last verdict on the run's drift. The daemon tells it with each
// save, step, operation and heartbeat, so that nothing is asked here.
func (r *Run) Drift() ckpt.DriftVerdict {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.drift
}

// OnDrift has f called when the verdict gets worse, or something new was found. It
// is called by the goroutine that got the answer, which may be that of the
// heartbeat, and must not wait for the run.
func (r *Run) OnDrift(f func(ckpt.DriftVerdict)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.onDrift = append(r.onDrift, f)
}

// Report tells of a finding of the agent's own. The run and the epoch are filled in.
func (r *Run) Report(ctx context.Context, f ckpt.FindingRequest) (*ckpt.PostedFinding, error) {
	f.Run, f.Epoch = r.Name, r.epoch
	f.Severity = cmp.Or(f.Severity, ckpt.SeverityWarn)
	posted, _, err := r.Agent.client.wire.PostFinding(ctx, r.Agent.Name, f)
	r.noteLost(err)
	if posted != nil {
		r.noteDrift(posted.Drift)
	}
	return posted, err
}

// Dismiss says that a finding was none, or is dealt with. Checkpoints that were
// suspect because of it alone are clean again.
func (r *Run) Dismiss(ctx context.Context, finding, reason string) (*ckpt.DismissedFinding, error) {
	dismissed, _, err := r.Agent.client.wire.Dismiss(ctx, ckpt.DismissRequest{ID: finding, Reason: reason})
	if dismissed != nil {
		r.noteDrift(dismissed.Drift)
	}
	return dismissed, err
}

// noteDrift takes in the verdict of an answer, nil where it had none.
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
