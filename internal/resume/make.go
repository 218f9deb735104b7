package resume

import (
	ckpt "github.com/ckptsidecar/ckptsidecar"
)

var _ Resumer = Make

// Make says how to go on with a run. Its error is that of a checkpoint which
// could not be read for another reason than damage.
func Make(f *Facts) (*ckpt.Plan, error) {
	m := &maker{f: f, plan: blank(f)}
	switch {
	case !f.Exists:
		m.fresh(m.thereIsNone())
	case ended(f.Run.Status):
		m.plan.ContinuationPrompt, m.plan.ExternalSession = "", ""
		m.fresh(m.itEnded(), m.operatorEnded(ckpt.ChoiceAbandon))
	case m.ownedByAnother() && !f.Force:
		m.plan.Verdict = ckpt.VerdictUnsafe
		m.say(m.ownerLives())
	case !begun(f):
		m.fresh(m.happened(), m.operatorEnded(ckpt.ChoiceReinitialize),
			"Nothing is saved and no step is done, so there is nothing to resume: begin anew.", m.forkedFrom())
	default:
		if err := m.goOn(); err != nil {
			return nil, err
		}
	}
	if f.DryRun {
		m.say("This was only a look: nothing was claimed or changed.")
	}
	return m.plan, nil
}

// blank is a plan with what does not depend on the verdict.
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
		EventsAfter:         f.LastEvent,
		ContinuationPrompt:  f.Run.ContinuationPrompt,
		AccumulatedMS:       f.Run.AccumulatedMS,
		ExternalSession:     f.Run.ExternalSession,
	}
}

// goOn plans for a run that has something to go on with and nobody who owns it.
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
		m.say("Nothing is handed out. Bring a checkpoint back from a backup or an export, or begin a new run.")
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
		len(m.plan.UncertainOperations) > 0, m.choice.suspect(), m.f.OwnerStands:
		return ckpt.VerdictRepair
	}
	return ckpt.VerdictResume
}

// takeProgram cuts what has run off the program, by its offset alone: a
// statement that stands twice in the source must not confuse it.
func (m *maker) takeProgram() {
	if m.choice.loaded == nil || m.choice.loaded.Program == nil {
		return
	}
	p := m.choice.loaded.Program
	m.plan.Program = &ckpt.ProgramRest{Executed: p.Executed, Remaining: p.Source[p.Executed:]}
}
