package resume

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

// explain gives the reasons in the order in which a person asks: what happened, who
// must decide, what was decided, what to load, what not to repeat.
func (m *maker) explain() {
	m.say(m.happened())
	m.say(m.aboutOperations()...)
	for _, d := range m.doubts {
		m.say(d.text)
	}
	if m.decided() {
		m.say(m.operatorDecided())
	}
	if p := m.plan.Prompt; p != nil {
		m.say(fmt.Sprintf("Prompt %s has waited for an answer since %s.", p.ID, m.when(p.At.Time)))
	}
	m.say(m.toLoad())
	m.say(m.passedOver()...)
	m.say(m.completedSteps())
	m.say(m.interruptedSteps()...)
	m.say(m.program())
	m.say(m.conclusion())
}

func (m *maker) conclusion() string {
	switch {
	case m.plan.Verdict == ckpt.VerdictAsk:
		return "Do not continue before an operator has answered."
	case m.ownedByAnother():
		return "Continue only after the old owner is stopped."
	case m.f.OwnerStands:
		return "Continue only after that process is stopped."
	case m.plan.Verdict == ckpt.VerdictRepair && m.decided():
		return "Continue as the operator decided, with the changes listed here."
	case m.plan.Verdict == ckpt.VerdictRepair:
		return "It is safe to continue with the changes listed here."
	}
	return "It is safe to continue."
}

// claimed says which host the run comes from, "" for no claim.
func (m *maker) claimed() string {
	c := m.f.Claimed
	switch {
	case c == nil:
		return ""
	case !c.StrandPossible:
		return fmt.Sprintf("The run was claimed from host %s, which had released it.", c.FromHost)
	case c.LostAtMost > 0:
		return fmt.Sprintf("The run was claimed from host %s, which had been silent for %s. What the run did in that time is not known here.",
			c.FromHost, c.LostAtMost)
	}
	return fmt.Sprintf("The run was claimed from host %s, which had gone silent. Everything that was acknowledged there is here. "+
		"Check the effects on the outside world: the process on that host may still have been acting.", c.FromHost)
}

func (m *maker) thereIsNone() string {
	if m.f.Run.Run == "" {
		return "There is no such run yet, so there is nothing to resume: start from the beginning."
	}
	return "There is no " + m.run() + " yet, so there is nothing to resume: start from the beginning."
}

func (m *maker) itEnded() string {
	r := &m.f.Run
	return fmt.Sprintf("The %s ended as %s%s, so there is nothing to resume: start from the beginning, as a new attempt.",
		m.run(), r.Status, m.at(r.EndedAt.Time))
}

// endedOver says that a run ended while nobody knows how an operation of it ended.
func (m *maker) endedOver() string {
	return fmt.Sprintf("The %s ended as %s%s, and nobody knows how an operation of it ended.", m.run(), m.f.Run.Status, m.at(m.f.Run.EndedAt.Time))
}

func (m *maker) forkedFrom() string {
	if m.f.Run.ForkedFrom == "" {
		return ""
	}
	return fmt.Sprintf("The run is a fork: it starts from the state of checkpoint %s.", m.f.Run.ForkedFrom)
}

func (m *maker) ownerLives() string {
	return fmt.Sprintf("The %s belongs to %s, which is %s. "+
		"Two owners would do the same work twice. Stop that process first, or resume with force to take over the run: "+
		"its writes are then refused, but its work outside the daemon is not stopped.", m.run(), m.owner(), m.lives("", ": the daemon cannot see that process, and its heartbeats have not stopped"))
}

// lives says what is known of an owner that is taken for alive.
func (m *maker) lives(still, why string) string {
	if m.f.OwnerSeen {
		return still + "alive"
	}
	return "not known to be dead" + why
}

// happened says how the last segment ended.
func (m *maker) happened() string {
	f := m.f
	switch {
	case m.ownedByAnother():
		return fmt.Sprintf("The %s is taken over by force from %s, which is %s. Its writes are refused from now on, "+
			"but its work outside the daemon is not stopped. Stop it.", m.run(), m.owner(), m.lives("still ", ""))
	case m.resumesItself():
		return fmt.Sprintf("The %s is resumed by its own owner.", m.run())
	}
	switch f.Run.Status {
	case ckpt.RunSuspended:
		return fmt.Sprintf("The %s was suspended by its owner%s.", m.run(), m.at(m.lastWord()))
	case ckpt.RunAwaitingContinuation:
		return fmt.Sprintf("The %s was left by its owner%s to be continued.", m.run(), m.at(m.lastWord()))
	case ckpt.RunTimedOut:
		said := fmt.Sprintf("The %s timed out%s: %s sent no heartbeat or made no progress.", m.run(), m.at(f.Interrupted), m.owner())
		if f.OwnerStands {
			said += " That process still exists and may continue at any time. Once the run is resumed, its writes are refused, " +
				"but its work outside the daemon is not stopped. Stop it."
		}
		return said
	default:
	}
	switch {
	case m.reinitialized():
		return fmt.Sprintf("The %s was re-initialized%s: what it had before is history.", m.run(), m.at(f.Prompt.AnsweredAt.Time))
	case released(f):
		return fmt.Sprintf("The %s was stopped by its owner%s and ended as interrupted.", m.run(), m.at(m.lastWord()))
	case !f.Interrupted.IsZero():
		return fmt.Sprintf("The %s was interrupted%s: %s ended without ending the run.", m.run(), m.at(f.Interrupted), m.owner())
	}
	return fmt.Sprintf("The %s is recorded as %s, but none of its owners is known to be alive.", m.run(), f.Run.Status)
}

// reinitialized reports whether the last thing that happened to the run is that the
// operator made it begin from nothing.
func (m *maker) reinitialized() bool {
	p := m.f.Prompt
	return p != nil && p.Choice == ckpt.Ref(ckpt.ChoiceReinitialize) && m.f.Interrupted.IsZero() && !m.f.Run.UpdatedAt.After(p.AnsweredAt.Time)
}

func (m *maker) lastWord() time.Time {
	if !m.f.Run.EndedAt.IsZero() {
		return m.f.Run.EndedAt.Time
	}
	return m.f.Run.UpdatedAt.Time
}

// operatorEnded says that the run begins anew because the operator decided so.
func (m *maker) operatorEnded(choice ckpt.PromptChoice) string {
	if m.f.Prompt == nil || m.f.Prompt.Choice != ckpt.Ref(choice) || choice == ckpt.ChoiceReinitialize && !m.reinitialized() {
		return ""
	}
	return m.operatorDecided()
}

func (m *maker) operatorDecided() string {
	p := m.f.Prompt
	by := ""
	if p.AnsweredBy != "" {
		by = " by " + string(p.AnsweredBy)
	}
	return fmt.Sprintf("The operator decided: prompt %s was answered %s%s%s.", p.ID, p.Choice, by, m.at(p.AnsweredAt.Time))
}

// aboutOperations describes each uncertain operation. It names the checkpoint from
// before the operation, if that is not the one to load.
func (m *maker) aboutOperations() []string {
	list := m.plan.UncertainOperations
	said := make([]string, 0, len(list))
	for i := range list {
		if i == maxNamed && len(list) > maxNamed {
			return append(said, fmt.Sprintf("%d more operations are uncertain in the same way.", len(list)-i))
		}
		o := &list[i]
		s := fmt.Sprintf("Operation %s, attempt %d, began%s and nobody knows whether it took effect", stepName(o.Key, o.Name), o.Attempt, m.at(o.StartedAt.Time))
		if o.Error != "" {
			s += ": " + strings.TrimRight(string(o.Error), ".")
		}
		switch {
		case o.Left:
			s += ". It was left so on purpose, and its key cannot begin before somebody runs: " + ckpt.ResolveCommand(m.f.Run.Agent, m.f.Run.Run, o.Key) + "."
		case o.Idempotent:
			s += ". It is idempotent: begin it again with the same key."
		case !o.NeedsPerson():
			s += ". Its own check finds out when it begins again."
		default:
			s += ". Find out, then run: " + ckpt.ResolveCommand(m.f.Run.Agent, m.f.Run.Run, o.Key) + "."
		}
		if o.Checkpoint != "" && (m.choice.loaded == nil || string(o.Checkpoint) != m.choice.fact.ID) {
			s += fmt.Sprintf(" Checkpoint %s was taken just before it.", o.Checkpoint)
		}
		said = append(said, s)
	}
	return said
}

// toLoad names the checkpoint to go on from.
func (m *maker) toLoad() string {
	if m.choice.loaded == nil {
		return "No checkpoint was saved: start from the run's beginning, and use the results of the steps."
	}
	s := "Load "
	if m.plan.Verdict == ckpt.VerdictAsk {
		s = "If the run goes on, load "
	}
	s += m.checkpoint(&m.choice.fact)
	switch {
	case m.choice.suspect():
		s += ", although it is suspect"
	case m.choice.fact.Seq == 0:
	case m.f.GivenUp > 0 && len(m.choice.skipped) == 0:
		s += ", which was restored, clean and intact"
	case m.f.GivenUp > 0:
		s += ", the newest clean and intact one up to the one that was restored"
	case len(m.choice.skipped) > 0:
		s += ", the newest clean and intact one"
	case m.choice.fact.Seq < m.f.LastSeq:
		s += ", the newest clean and intact one that is left"
	default:
		s += ", the newest, clean and intact"
	}
	for i := range m.plan.UncertainOperations {
		o := &m.plan.UncertainOperations[i]
		if string(o.Checkpoint) == m.choice.fact.ID {
			s += "; it is the state from just before operation " + stepName(o.Key, o.Name)
			break
		}
	}
	switch n := m.f.GivenUp; {
	case n == 1:
		s += ". One checkpoint that was saved later, before that restore, is left behind"
	case n > 1:
		s += fmt.Sprintf(". %d checkpoints that were saved later, before that restore, are left behind", n)
	}
	return s + "."
}

func (m *maker) nothingIntact() string {
	if len(m.f.Checkpoints) == 1 {
		return "The run's only checkpoint does not read back intact."
	}
	return fmt.Sprintf("None of the run's %d checkpoints reads back intact.", len(m.f.Checkpoints))
}

// passedOver describes the checkpoints that were skipped: the suspect ones together,
// the damaged ones one by one.
func (m *maker) passedOver() []string {
	var said []string
	if n := m.choice.suspects; n == 1 {
		said = append(said, fmt.Sprintf("Checkpoint %s (number %d) is newer, "+
			"but was saved after the first evidence of critical drift: it is skipped.",
			m.choice.oldest.ID, m.choice.oldest.Seq))
	} else if n > 1 {
		said = append(said, fmt.Sprintf("%d newer checkpoints, from %s (number %d) on, were saved after the first "+
			"evidence of critical drift: they are skipped.",
			n, m.choice.oldest.ID, m.choice.oldest.Seq))
	}
	if n := m.choice.doubtful; n == 1 {
		said = append(said, fmt.Sprintf("Checkpoint %s (number %d) is newer, but was saved after a fault in the state: it is skipped.",
			m.choice.first.ID, m.choice.first.Seq))
	} else if n > 1 {
		said = append(said, fmt.Sprintf("%d newer checkpoints, from %s (number %d) on, were saved after a fault in the state: they are skipped.",
			n, m.choice.first.ID, m.choice.first.Seq))
	}
	said = append(said, m.found()...)
	told := 0
	for _, s := range m.choice.skipped {
		if isDoubted(s.Reason) {
			continue
		}
		if told == maxNamed {
			said = append(said, fmt.Sprintf("%d more checkpoints are damaged.", m.choice.damaged-told))
			break
		}
		told++
		said = append(said, fmt.Sprintf("Checkpoint %s (number %d) is skipped: %s", s.ID, s.Seq, sentence(s.Reason)))
	}
	return said
}

// isDoubted reports whether a checkpoint was skipped because of a finding.
func isDoubted(reason string) bool {
	return strings.HasPrefix(reason, whySuspect) || strings.HasPrefix(reason, whyDoubtful)
}

// found says which findings made the skipped checkpoints suspect, or the one that is
// taken although it is suspect.
func (m *maker) found() []string {
	var said []string
	for i := range m.f.Findings {
		f := &m.f.Findings[i]
		about := m.choice.suspect() && f.Doubts() && f.Covers(m.choice.fact.Seq)
		for _, s := range m.choice.skipped {
			about = about || isDoubted(s.Reason) && f.Covers(s.Seq)
		}
		if !about {
			continue
		}
		if len(said) == maxNamed {
			return append(said, "There are more findings; ckptsidecar drift "+m.f.Run.Agent+" --all lists them.")
		}
		what := "Critical drift"
		if !f.Marks() {
			what = "A fault in the state"
		}
		said = append(said, fmt.Sprintf("%s was found%s: %s.", what, m.at(f.At.Time), inWords(f)))
	}
	return said
}

// completedSteps says how many steps need not run again, and whether some of them ran
// while the agent was drifting.
func (m *maker) completedSteps() string {
	n := len(m.plan.CompletedSteps)
	if n == 0 {
		return ""
	}
	since := ""
	if m.choice.loaded != nil {
		since = " since that checkpoint"
	}
	s := fmt.Sprintf("%d steps succeeded%s: use their results and do not run them again.", n, since)
	if n == 1 {
		s = fmt.Sprintf("1 step succeeded%s: use its result and do not run it again.", since)
	}
	if m.drifted {
		s += " Check the results before you trust them: the agent was drifting during some of these steps."
	}
	return s
}

func (m *maker) interruptedSteps() []string {
	list := m.plan.InterruptedSteps
	var said []string
	for i := range list {
		if i == maxNamed {
			return append(said, fmt.Sprintf("%d more steps were interrupted in the same way.", len(list)-i))
		}
		s := &list[i]
		said = append(said, fmt.Sprintf("Step %s began%s and its result was lost: it may or may not have taken effect. "+
			"Give its synthetic result to the model, and check before you repeat it.", stepName(s.Key, s.Name), m.at(s.StartedAt.Time)))
	}
	return said
}

func (m *maker) program() string {
	p := m.plan.Program
	switch {
	case p == nil:
		return ""
	case p.Remaining == "":
		return fmt.Sprintf("All %d bytes of its program have run.", p.Executed)
	}
	return fmt.Sprintf("Of its program the first %d bytes have run: run exactly the %d that remain.", p.Executed, len(p.Remaining))
}

func (m *maker) run() string { return fmt.Sprintf("run %s of agent %s", m.f.Run.Run, m.f.Run.Agent) }

func (m *maker) owner() string {
	if m.f.Run.PID == 0 {
		return "its owner"
	}
	return "its owner (process " + strconv.Itoa(m.f.Run.PID) + ")"
}

// checkpoint names a checkpoint so that a person can find it in a list. Number 0 means
// the checkpoint of another run that this run was forked from.
func (m *maker) checkpoint(c *FactCheckpoint) string {
	if c.Seq == 0 {
		return fmt.Sprintf("checkpoint %s, from which the run was forked", c.ID)
	}
	return fmt.Sprintf("checkpoint %s (%s, number %d), saved%s", c.ID, c.Kind, c.Seq, m.at(c.At))
}

// sentence makes a message end with exactly one period.
func sentence(s string) string { return strings.TrimRight(s, ".") + "." }

// at returns " at" and a time, or nothing if the time is not known.
func (m *maker) at(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return " at " + m.when(t)
}

// when returns a time with its age. A time in the future by the clock has no age.
func (m *maker) when(t time.Time) string {
	s := ckpt.At(t).String()
	if d := m.f.Now.Sub(t); d >= 0 && !m.f.Now.IsZero() {
		s += " (" + ckpt.Age(d) + " ago)"
	}
	return s
}
