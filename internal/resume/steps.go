package resume

import (
	"encoding/json"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

// takeSteps sorts the steps into those that are done, with their results, and those
// whose outcome nobody knows. A failed step is neither: its outcome is known, and the
// agent decides whether to try it again.
func (m *maker) takeSteps() {
	for i := range m.f.Steps {
		s := &m.f.Steps[i]
		switch s.Status {
		case ckpt.StepSucceeded:
			if m.since(i) {
				m.plan.CompletedSteps = append(m.plan.CompletedSteps, ckpt.CompletedStep{Key: s.Key, Name: s.Name, Result: s.Result})
				m.drifted = m.drifted || m.whileDrifting(i)
			}
		case ckpt.StepStarted, ckpt.StepInterrupted:
			if !m.dealtWith(i) {
				m.plan.InterruptedSteps = append(m.plan.InterruptedSteps, ckpt.InterruptedStep{
					Key: s.Key, Name: s.Name, Args: s.Args, StartedAt: s.StartedAt,
					SyntheticResult: synthesize(s, m.lost()),
				})
			}
		case ckpt.StepFailed:
		}
	}
}

// since reports whether a step ended after the chosen checkpoint was saved, so that the
// state does not know about it.
func (m *maker) since(i int) bool {
	if m.choice.loaded == nil || i >= len(m.f.StepsAfter) {
		return true
	}
	return m.f.StepsAfter[i] >= m.choice.fact.StateSeq()
}

// whileDrifting reports whether a step ended after the oldest suspect checkpoint that
// was skipped. It is true for every step if the checkpoint to load is suspect.
func (m *maker) whileDrifting(i int) bool {
	if m.choice.suspect() {
		return true
	}
	return m.choice.oldest.ID != "" && i < len(m.f.StepsAfter) && m.f.StepsAfter[i] >= m.choice.oldest.Seq
}

// dealtWith reports whether the chosen checkpoint was saved by a later owner, who was
// told about the interrupted step. Then the transcript in the checkpoint has an answer
// to the call, and model APIs refuse a second one. A checkpoint that was saved while
// the step ran has no answer. Both the order and the times must agree; if in doubt, the
// plan lists the step again.
func (m *maker) dealtWith(i int) bool {
	s := &m.f.Steps[i]
	return s.Status == ckpt.StepInterrupted && !m.since(i) &&
		!s.EndedAt.IsZero() && s.EndedAt.Before(m.choice.fact.At)
}

// lost says how the result of an open step was lost.
func (m *maker) lost() string {
	switch {
	case m.ownedByAnother():
		return "its run was taken over"
	case m.resumesItself():
		return "its run was resumed"
	case m.f.Run.Status == ckpt.RunTimedOut:
		return "its process stopped answering"
	}
	return "its process ended"
}

// synthesize makes an answer for a step whose result was lost, in words and in the
// forms that model APIs accept, so that every tool call of a transcript has a result.
func synthesize(s *ckpt.Step, lost string) ckpt.SyntheticResult {
	return ckpt.NewSyntheticResult(s.Key, "The step "+stepName(s.Key, s.Name)+" was interrupted: "+lost+
		" before the result was recorded. It may or may not have taken effect; check before you repeat it.")
}

// object marshals plain fields and checked JSON, which cannot fail.
func object(v any) ckpt.JSON {
	b, _ := json.Marshal(v)
	return b
}

// takeOperations lists the operations whose outcome nobody knows. An open operation has
// lost its owner, or is about to, so it is shown as uncertain, which is what the claim
// makes it.
func (m *maker) takeOperations() {
	for _, o := range m.f.Operations {
		if o.Status == ckpt.OperationOpen || o.Status == ckpt.OperationUncertain {
			o.Status = ckpt.OperationUncertain
			m.plan.UncertainOperations = append(m.plan.UncertainOperations, o)
		}
	}
}
