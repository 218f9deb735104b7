package resume

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

// findDoubts lists what an operator must decide, and what one has decided already.
func (m *maker) findDoubts() []doubt {
	var doubts []doubt
	for i := range m.plan.UncertainOperations {
		if !m.f.Leave && m.f.Operations[i].NeedsPerson() {
			doubts = append(doubts, doubt{operation: true})
		}
	}
	if m.held() {
		doubts = append(doubts, doubt{
			text:    "The policy says autoresume: false, so an operator decides whether the run continues.",
			covered: madeSince(m.f.Interrupted),
		})
	}
	if m.choice.suspect() {
		doubts = append(doubts, doubt{
			text: "No clean checkpoint is left: every intact checkpoint was saved after the first evidence of critical drift. " +
				"The newest one is offered, and an operator must decide whether to trust it.",
			covered: func(p *ckpt.Prompt) bool { return string(p.Checkpoint) == m.choice.fact.ID },
		})
	}
	for i := range doubts {
		p := m.f.Prompt
		doubts[i].settled = !doubts[i].operation && p != nil && p.Choice == ckpt.Ref(ckpt.ChoiceResume) && doubts[i].covered(p) && !p.At.After(m.f.Now)
	}
	return doubts
}

// madeSince returns a function that reports whether a prompt was made at a moment or
// after it, so that the person who answered could know what began at that moment.
// Stored times are in milliseconds.
func madeSince(moment time.Time) func(*ckpt.Prompt) bool {
	moment = ckpt.At(moment).Time
	return func(p *ckpt.Prompt) bool { return !p.At.Before(moment) }
}

// held reports whether the policy wants an operator to look before the run goes on. It
// does not if the owner itself stopped the run.
func (m *maker) held() bool {
	if m.f.Autoresume || released(m.f) {
		return false
	}
	return !m.f.Interrupted.IsZero() || m.f.Run.Status == ckpt.RunTimedOut
}

func (m *maker) asks() bool {
	for _, d := range m.doubts {
		if !d.settled {
			return true
		}
	}
	return false
}

// decided reports whether something goes on because the operator decided so.
func (m *maker) decided() bool {
	for _, d := range m.doubts {
		if d.settled {
			return true
		}
	}
	return false
}

// waitingFor returns the unanswered decision, if an answer to it would let the run go on. An older one about something
// else does not count. While an operation is uncertain, only the questions about operations are asked.
func (m *maker) waitingFor() *ckpt.Prompt {
	p := m.f.Prompt
	if !m.asks() || p == nil || p.Choice != "" {
		return nil
	}
	for _, d := range m.doubts {
		if d.operation || !d.settled && !d.covered(p) {
			return nil
		}
	}
	return p
}

// Question returns the question of a prompt for a plan, in one sentence.
func Question(p *ckpt.Plan) string {
	var b strings.Builder
	fmt.Fprintf(&b, "Resume run %s of agent %s", p.Run, p.Agent)
	if p.Checkpoint != nil {
		fmt.Fprintf(&b, " from its %s checkpoint %d (%s, saved %s)", p.Checkpoint.Kind, p.Checkpoint.Seq, p.Checkpoint.ID, p.Checkpoint.CreatedAt)
	} else {
		b.WriteString(" without a checkpoint, from the results of its steps")
	}
	b.WriteString(", re-initialize it (start from the beginning and leave all of this behind), or abandon it?")
	return b.String()
}

// wasDryRun ends the reasons of a plan that changed nothing.
const wasDryRun = "This was a dry run: nothing was claimed or changed."

// agedTime is a time with its age, as maker.when writes it.
var agedTime = regexp.MustCompile(`(\d{4}-\d\d-\d\dT[\d:.]+Z) \((?:under a second|\d+ [a-z]+(?: \d+ [a-z]+)?) ago\)`)

// Reason returns why a prompt for a plan asks: what happened and what is known. It is read much later than the plan, so it
// has times without their ages. That the plan changed nothing is not true of the prompt.
func Reason(p *ckpt.Plan) string {
	reasons := slices.DeleteFunc(slices.Clone(p.Reasons), func(s string) bool { return s == wasDryRun })
	return agedTime.ReplaceAllString(strings.Join(reasons, " "), "$1")
}
