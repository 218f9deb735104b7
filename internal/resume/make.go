package resume

import (
	ckpt "github.com/ckptsidecar/ckptsidecar"
)

var _ ckpt.Resumer = Make

// Make says how to go on with a run. Its error is that of a checkpoint which
// could not be read for another reason than damage.
func Make(f *ckpt.Facts) (*ckpt.Plan, error) {
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

// maker holds a plan in the making.
type maker struct {
	f      *ckpt.Facts
	plan   *ckpt.Plan
	choice choice
	doubts []doubt

	drifted bool // some of the completed steps were done while the agent was drifting
}

// blank is a plan with what does not depend on the verdict.
func blank(f *ckpt.Facts) *ckpt.Plan {
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

// say adds sentences to the reasons; empty ones are not said.
func (m *maker) say(sentences ...string) {
	for _, s := range sentences {
		if s != "" {
			m.plan.Reasons = append(m.plan.Reasons, s)
		}
	}
}

func (m *maker) fresh(sentences ...string) {
	m.plan.Verdict = ckpt.VerdictFresh
	m.say(sentences...)
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

func ended(s ckpt.RunStatus) bool { return s == ckpt.RunCompleted || s == ckpt.RunFailed }

// released says whether the last owner let go of the run by its own word. It
// may well live on, with other things to do.
func released(f *ckpt.Facts) bool {
	switch f.Run.Status {
	case ckpt.RunSuspended, ckpt.RunAwaitingContinuation:
		return true
	case ckpt.RunInterrupted:
		return f.Interrupted.IsZero()
	default:
		return false
	}
}

// ownedByAnother says whether somebody who lives would be pushed aside.
func (m *maker) ownedByAnother() bool {
	return m.f.OwnerAlive && !m.f.CallerOwns && !released(m.f)
}

// resumesItself says whether a running owner asks for its own run, for example
// because its loop began anew inside the same process.
func (m *maker) resumesItself() bool {
	return m.f.CallerOwns && m.f.Run.Status == ckpt.RunRunning
}

// begun says whether there is anything to go on with. A run that uses steps
// alone, and saves no state, is as resumable as any. A step that failed was
// done with.
func begun(f *ckpt.Facts) bool {
	if len(f.Checkpoints) > 0 || len(f.Operations) > 0 {
		return true
	}
	for i := range f.Steps {
		if f.Steps[i].Status != ckpt.StepFailed {
			return true
		}
	}
	return false
}
