package resume

import (
	"fmt"
	"slices"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

var _ Resumer = Make

// Make plans how to go on with a run. It returns an error only if a checkpoint could
// not be read for a reason other than damage.
func Make(f *Facts) (*ckpt.Plan, error) {
	m := &maker{f: f, plan: blank(f)}
	m.plan.Fleet = f.Claimed
	m.say(m.claimed())
	switch {
	case !f.Exists:
		m.fresh(m.thereIsNone())
	case ended(f.Run.Status) && hidden(f) && !f.Leave:
		m.takeOperations()
		m.plan.Verdict = ckpt.VerdictAsk
		m.say(m.endedOver())
		m.say(m.aboutOperations()...)
		m.say("Do not begin anew before this is resolved.")
	case ended(f.Run.Status):
		m.plan.ContinuationPrompt, m.plan.ExternalSession = "", ""
		m.fresh(m.itEnded(), m.operatorEnded(ckpt.ChoiceAbandon))
	case m.ownedByAnother() && !f.Force:
		m.plan.Verdict = ckpt.VerdictUnsafe
		m.say(m.ownerLives())
	case !begun(f):
		m.fresh(m.happened(), m.operatorEnded(ckpt.ChoiceReinitialize),
			"Nothing is saved and no step is done, so there is nothing to resume: start from the beginning.", m.forkedFrom())
	default:
		if err := m.goOn(); err != nil {
			return nil, err
		}
	}
	m.takeQuestions()
	if f.DryRun {
		m.say(wasDryRun)
	}
	return m.plan, nil
}

// blank returns a plan with everything that does not depend on the verdict.
func blank(f *Facts) *ckpt.Plan {
	return &ckpt.Plan{
		Reasons:             []string{},
		Agent:               f.Run.Agent,
		Run:                 f.Run.Run,
		Epoch:               f.Run.Epoch,
		Attempt:             f.Run.Attempt,
		CompletedSteps:      []ckpt.CompletedStep{},
		InterruptedSteps:    []ckpt.InterruptedStep{},
		UncertainOperations: []ckpt.Operation{},
		Skipped:             []ckpt.Skipped{},
		Questions:           []ckpt.Prompt{},
		EventsAfter:         f.LastEvent,
		ContinuationPrompt:  f.Run.ContinuationPrompt,
		AccumulatedMS:       f.Run.AccumulatedMS,
		ExternalSession:     f.Run.ExternalSession,
		Command:             f.Run.Command,
	}
}

// hidden reports whether a new beginning would hide an operation that nobody has left uncertain on purpose.
func hidden(f *Facts) bool {
	return slices.ContainsFunc(f.Operations, func(o ckpt.Operation) bool { return !o.Left })
}

// goOn plans for a run that can go on and that no living owner holds.
func (m *maker) goOn() error {
	var err error
	if m.choice, err = choose(m.f); err != nil {
		return err
	}
	m.plan.Skipped = m.choice.skipped
	m.plan.Checkpoint = m.choice.loaded
	m.takeSteps()
	m.takeOperations()
	if len(m.f.Checkpoints) > 0 && m.choice.loaded == nil {
		m.plan.Verdict = ckpt.VerdictUnsafe
		m.say(m.happened(), m.nothingIntact())
		m.say(m.passedOver()...)
		m.say(m.aboutOperations()...)
		m.say(m.interruptedSteps()...)
		m.say("No state is returned. Bring back a checkpoint from a backup or an export, or start a new run.")
		return nil
	}
	m.takeProgram()
	m.doubts = m.findDoubts()
	m.plan.Verdict = m.verdict()
	m.plan.Prompt = m.waitingFor()
	m.plan.MemoryDiff = m.memoryDiff()
	m.explain()
	return nil
}

func (m *maker) verdict() ckpt.ResumeVerdict {
	switch {
	case m.asks():
		return ckpt.VerdictAsk
	case len(m.plan.Skipped) > 0, len(m.plan.InterruptedSteps) > 0,
		len(m.plan.UncertainOperations) > 0, m.choice.suspect(), m.f.OwnerStands, m.f.Claimed != nil:
		return ckpt.VerdictRepair
	}
	return ckpt.VerdictResume
}

// takeProgram cuts off the part of the program that has run. It uses only the offset,
// so that a statement that occurs twice in the source cannot confuse it.
func (m *maker) takeProgram() {
	if m.choice.loaded == nil || m.choice.loaded.Program == nil {
		return
	}
	p := m.choice.loaded.Program
	m.plan.Program = &ckpt.ProgramRest{Executed: p.Executed, Remaining: p.Source[p.Executed:]}
}

// maxSaidQuestions is how many questions the reasons name; the plan lists all of them.
const maxSaidQuestions = 3

// takeQuestions lists the run's own questions: those that are open, and those whose
// answers the state of the checkpoint does not know yet.
func (m *maker) takeQuestions() {
	if ended(m.f.Run.Status) {
		return // the run begins anew, and so do its questions
	}
	after := int64(0)
	if m.plan.Checkpoint != nil {
		after = m.choice.fact.StateSeq()
	}
	for i := range m.f.Questions {
		q := &m.f.Questions[i]
		if q.Status != ckpt.PromptAnswered && q.Status != ckpt.PromptOpen || q.Status == ckpt.PromptAnswered && q.Seq < after {
			continue
		}
		m.plan.Questions = append(m.plan.Questions, q.Prompt)
		if len(m.plan.Questions) <= maxSaidQuestions {
			m.say(m.aboutQuestion(&q.Prompt))
		}
	}
	if more := len(m.plan.Questions) - maxSaidQuestions; more > 0 {
		m.say(fmt.Sprintf("Of the questions that the run asked %d more are listed.", more))
	}
}

func (m *maker) aboutQuestion(p *ckpt.Prompt) string {
	if p.Status == ckpt.PromptOpen {
		return fmt.Sprintf("The run asked %q and has no answer yet: prompt %s.", p.Question, p.ID)
	}
	answer := "with data"
	if p.Choice != "" {
		answer = fmt.Sprintf("%q", string(p.Choice))
	}
	return fmt.Sprintf("The run asked %q, and was answered %s%s.", p.Question, answer, m.at(p.AnsweredAt.Time))
}
