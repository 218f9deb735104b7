package db

import (
	"context"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/wellformed"
)

// PostFinding notes a finding of the agent's own. A critical one has the same
// consequences as a detector's. Where no more are noted of the run the answer
// is a conflict.
func (s *drifts) PostFinding(_ context.Context, sc ckpt.Scope, agentName string, r ckpt.FindingRequest) (*ckpt.PostedFinding, bool, error) {
	if err := wellformed.Finding(&r); err != nil {
		return nil, false, err
	}
	ref := ckpt.RunRef{Agent: agentName, Run: r.Run, Epoch: r.Epoch}
	if err := ref.Check(); err != nil {
		return nil, false, err
	}
	c := s.screen(sc, agentName, "finding")
	c.key("rule", r.Rule)
	c.text("message", &r.Message)
	c.ref("advice", &r.Advice)
	c.json("evidence", &r.Evidence)
	if c.err != nil {
		return nil, false, c.err
	}
	e := entry(sc, "finding", agentName)
	e.Run = runName(r.Run)
	past := s.readAheadFor(sc, ref)
	return keyed(s, sc, keyedRequest{agent: agentName, key: r.IdempotencyKey, print: r, entry: e, make: true, drift: true, secrets: c.found}, func(tx *tx, _ *agentRow) (*ckpt.PostedFinding, error) {
		agent, run, err := s.openRun(tx, sc, ref)
		if err != nil {
			return nil, err
		}
		w, err := s.watchRun(tx, agent, run, past)
		if err != nil {
			return nil, err
		}
		return s.postFinding(tx, agent, run, w, r, e)
	})
}

func (s *drifts) postFinding(tx *tx, agent *agentRow, run *runRow, w *watched, r ckpt.FindingRequest, e auditEntry) (*ckpt.PostedFinding, error) {
	f := &ckpt.Finding{Rule: r.Rule, Severity: r.Severity, Message: r.Message, Advice: r.Advice, Evidence: r.Evidence, Checkpoint: run.Head}
	if len(f.Evidence) == 0 {
		f.Evidence = ckpt.JSON("{}")
	}
	if r.Severity == ckpt.SeverityCritical {
		since := run.LastSeq
		if r.SinceSeq != nil {
			since = *r.SinceSeq
		}
		f.SinceSeq = &since
	}
	if err := s.begin(tx, agent, run, f); err != nil {
		return nil, err
	}
	critical, err := s.note(tx, agent, run, w, f, e)
	if err != nil {
		return nil, err
	}
	if len(tx.made) == 0 {
		return nil, ckpt.Errorf(ckpt.CodeConflict, "run %s has %d open findings, and no more are noted: dismiss some", run.Name, len(w.open))
	}
	if err := tx.signOfLife(run); err != nil {
		return nil, err
	}
	if critical {
		if _, err := s.retainRun(tx, agent, run, e); err != nil {
			return nil, err
		}
	}
	return &ckpt.PostedFinding{Finding: tx.made[len(tx.made)-1]}, nil
}

// readAheadFor is readAhead for what names a run.
func (s *drifts) readAheadFor(sc ckpt.Scope, ref ckpt.RunRef) *past {
	if s.opt.Drift == nil {
		return nil
	}
	p := s.policyOf(sc.Whose(), ref.Agent)
	return s.readAhead(runKey{sc.Whose(), ref.Agent, runName(ref.Run)}, &p)
}
