package resume

import (
	"encoding/json"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

// takeSteps sorts the steps into those that are done, with their results, and
// those that nobody knows the end of. A failed step is neither: its end is
// known, and whether to try it again is the agent's to say.
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

// since says whether a step ended after the chosen checkpoint was saved, so
// that the state does not know of it.
func (m *maker) since(i int) bool {
	if m.choice.loaded == nil || i >= len(m.f.StepsAfter) {
		return true
	}
	return m.f.StepsAfter[i] >= m.choice.fact.StateSeq()
}

// whileDrifting says whether a step ended after the first suspect checkpoint
// that was passed over, or after the one that is to be loaded.
func (m *maker) whileDrifting(i int) bool {
	if m.choice.suspect() {
		return true
	}
	return m.choice.oldest.ID != "" && i < len(m.f.StepsAfter) && m.f.StepsAfter[i] >= m.choice.oldest.Seq
}

// dealtWith says whether the chosen checkpoint was saved by a later owner, who
// was told of the interrupted step: then the transcript in it has an answer to
// the call, and model APIs refuse a second one. A checkpoint that was saved
// while the step ran has none. Both the order and the times must agree; in
// doubt the step is told of again.
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

// synthesize answers a step whose result was lost, in words and in the forms
// that model APIs accept, so that every tool call of a transcript has a result.
func synthesize(s *ckpt.Step, lost string) ckpt.SyntheticResult {
	text := "The step " + stepName(s.Key, s.Name) + " was interrupted: " + lost +
		" before the result was recorded. It may or may not have taken effect; check before you repeat it."
	return ckpt.SyntheticResult{
		Text: text,
		Anthropic: object(struct {
			Type      string `json:"type"`
			ToolUseID string `json:"tool_use_id"`
			IsError   bool   `json:"is_error"`
			Content   string `json:"content"`
		}{"tool_result", s.Key, true, text}),
		OpenAI: object(struct {
			Role       string `json:"role"`
			ToolCallID string `json:"tool_call_id"`
			Content    string `json:"content"`
		}{"tool", s.Key, text}),
	}
}

// object writes what is made of plain fields and checked JSON, which cannot fail.
func object(v any) ckpt.JSON {
	b, _ := json.Marshal(v)
	return b
}

// takeOperations lists the operations that nobody knows the end of. An open one
// lost its owner, or is about to, so it is shown as what the claim makes of it.
func (m *maker) takeOperations() {
	for _, o := range m.f.Operations {
		if o.Status == ckpt.OperationOpen || o.Status == ckpt.OperationUncertain {
			o.Status = ckpt.OperationUncertain
			m.plan.UncertainOperations = append(m.plan.UncertainOperations, o)
		}
	}
}
