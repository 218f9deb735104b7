package resume

import (
	"strconv"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

// maker holds a plan while it is made.
type maker struct {
	f      *Facts
	plan   *ckpt.Plan
	choice choice
	doubts []doubt

	drifted bool // some of the completed steps ran while the agent was drifting
}

// say adds sentences to the reasons. It skips empty ones.
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

// released reports whether the last owner itself let go of the run. The owner's process
// may well be alive and do other things.
func released(f *Facts) bool {
	switch f.Run.Status {
	case ckpt.RunSuspended, ckpt.RunAwaitingContinuation:
		return true
	case ckpt.RunInterrupted:
		return f.Interrupted.IsZero()
	default:
		return false
	}
}

func ended(s ckpt.RunStatus) bool { return s == ckpt.RunCompleted || s == ckpt.RunFailed }

// begun reports whether there is anything to go on with. A run that has only steps, and
// saves no state, can be resumed like any other. A failed step does not count, and neither does an operation that was left
// uncertain on purpose.
func begun(f *Facts) bool {
	if len(f.Checkpoints) > 0 || hidden(f) {
		return true
	}
	for i := range f.Steps {
		if f.Steps[i].Status != ckpt.StepFailed {
			return true
		}
	}
	return false
}

// ownedByAnother reports whether the run has a living owner that would be displaced.
func (m *maker) ownedByAnother() bool {
	return m.f.OwnerAlive && !m.f.CallerOwns && !released(m.f)
}

// resumesItself reports whether a running owner asks for its own run, for example
// because its loop started again inside the same process.
func (m *maker) resumesItself() bool {
	return m.f.CallerOwns && m.f.Run.Status == ckpt.RunRunning
}

// doubt is something that an operator must decide.
type doubt struct {
	text string
	// covered reports whether a prompt was about this, so that its answer counts.
	covered func(*ckpt.Prompt) bool
	// settled is true if the operator has answered such a prompt with resume.
	settled bool
	// operation is true for an uncertain operation, which has a question of its own.
	operation bool
}

// maxNamed is how many things of one kind the reasons name one by one; the lists of the
// plan have all of them.
const maxNamed = 5

// stepName returns a key, with the name if it says more.
func stepName(key, name string) string {
	if name == "" || name == key {
		return strconv.Quote(key)
	}
	return strconv.Quote(key) + " (" + name + ")"
}
