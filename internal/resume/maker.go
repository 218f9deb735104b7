package resume

import (
	"fmt"
	"strconv"
	"strings"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

// maker holds a plan in the making.
type maker struct {
	f      *Facts
	plan   *ckpt.Plan
	choice choice
	doubts []doubt

	drifted bool // some of the completed steps were done while the agent was drifting
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

// released says whether the last owner let go of the run by its own word. It
// may well live on, with other things to do.
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

// begun says whether there is anything to go on with. A run that uses steps
// alone, and saves no state, is as resumable as any. A step that failed was
// done with.
func begun(f *Facts) bool {
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

// ownedByAnother says whether somebody who lives would be pushed aside.
func (m *maker) ownedByAnother() bool {
	return m.f.OwnerAlive && !m.f.CallerOwns && !released(m.f)
}

// resumesItself says whether a running owner asks for its own run, for example
// because its loop began anew inside the same process.
func (m *maker) resumesItself() bool {
	return m.f.CallerOwns && m.f.Run.Status == ckpt.RunRunning
}

// doubt is something that an operator must decide.
type doubt struct {
	text string
	// covered says whether a prompt was about this, so that its answer counts.
	covered func(*ckpt.Prompt) bool
	// settled says that the operator has answered resume to such a prompt.
	settled bool
}

func operationNames(list []ckpt.Operation) string {
	names := make([]string, 0, maxNamed)
	for i := range list {
		if i == maxNamed {
			return fmt.Sprintf("%s and %d more operations", strings.Join(names, ", "), len(list)-i)
		}
		names = append(names, stepName(list[i].Key, list[i].Name))
	}
	if len(names) == 1 {
		return "operation " + names[0]
	}
	return "operations " + strings.Join(names[:len(names)-1], ", ") + " and " + names[len(names)-1]
}

// maxNamed is how many things of one sort the reasons tell one by one; the
// lists of the plan have them all.
const maxNamed = 5

// stepName is a key, with the name where it tells more.
func stepName(key, name string) string {
	if name == "" || name == key {
		return strconv.Quote(key)
	}
	return strconv.Quote(key) + " (" + name + ")"
}
