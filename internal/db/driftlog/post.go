package driftlog

import (
	"context"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db/blob"
	"github.com/ckptsidecar/ckptsidecar/internal/db/ledger"
	"github.com/ckptsidecar/ckptsidecar/internal/wellformed"
)

// PostFinding records a finding that the agent reports itself. A critical one has the same
// consequences as a detector's. If the run can have no more findings, the answer is a conflict.
func (s *Drifts) PostFinding(_ context.Context, sc ckpt.Scope, agentName string, r ckpt.FindingRequest) (*ckpt.PostedFinding, bool, error) {
	if err := wellformed.Finding(&r); err != nil {
		return nil, false, err
	}
	ref := ckpt.RunRef{Agent: agentName, Run: r.Run, Epoch: r.Epoch}
	if err := ref.Check(); err != nil {
		return nil, false, err
	}
	c := s.Screen(sc, agentName, "finding")
	c.Key("rule", r.Rule)
	c.Text("message", &r.Message)
	c.Ref("advice", &r.Advice)
	c.JSON("evidence", &r.Evidence)
	if c.Again(func() error { return wellformed.Finding(&r) }); c.Err != nil {
		return nil, false, c.Err
	}
	e := ledger.Entry(sc, "finding", agentName)
	e.Run = ledger.RunName(r.Run)
	past := s.ReadAheadFor(sc, ref)
	return Keyed(s, sc, KeyedRequest{Agent: agentName, Key: r.IdempotencyKey, Print: r, Entry: e, Make: true,
		Drift: true, Secrets: c.Found}, func(tx *ledger.Tx, _ *ledger.AgentRow) (*ckpt.PostedFinding, error) {
		agent, run, err := s.OpenRun(tx, sc, ref)
		if err != nil {
			return nil, err
		}
		w, err := s.WatchRun(tx, agent, run, past)
		if err != nil {
			return nil, err
		}
		return s.postFinding(tx, agent, run, w, r, e)
	})
}

func (s *Drifts) postFinding(tx *ledger.Tx, agent *ledger.AgentRow, run *ledger.RunRow, w *Watched,
	r ckpt.FindingRequest, e ledger.AuditEntry) (*ckpt.PostedFinding, error) {
	f := &ckpt.Finding{Rule: r.Rule, Severity: r.Severity, Message: r.Message, Advice: r.Advice, Evidence: r.Evidence, Checkpoint: run.Head}
	if len(f.Evidence) == 0 {
		f.Evidence = ckpt.JSON("{}")
	}
	since := run.LastSeq
	if r.SinceSeq != nil {
		since = *r.SinceSeq
	}
	f.Posted, f.About, f.SinceSeq = true, ckpt.AboutWork, &since
	if err := s.begin(tx, agent, run, f); err != nil {
		return nil, err
	}
	critical, err := s.note(tx, agent, run, w, f, e)
	if err != nil {
		return nil, err
	}
	if len(tx.Made) == 0 {
		return nil, ckpt.Errorf(ckpt.CodeConflict, "run %s has %d open findings, the most that are kept: dismiss some", run.Name, len(w.open))
	}
	if err := tx.SignOfLife(run); err != nil {
		return nil, err
	}
	if critical {
		if _, err := s.RetainRun(tx, agent, run, e); err != nil {
			return nil, err
		}
	}
	return &ckpt.PostedFinding{Finding: tx.Made[len(tx.Made)-1]}, nil
}

// ReadAheadFor is readAhead for a reference to a run.
func (s *Drifts) ReadAheadFor(sc ckpt.Scope, ref ckpt.RunRef) *past {
	if s.Opt.Drift == nil {
		return nil
	}
	p := s.PolicyOf(sc.Whose(), ref.Agent)
	return s.readAhead(blob.RunKey{Owner: sc.Whose(), Agent: ref.Agent, Run: ledger.RunName(ref.Run)}, &p)
}
