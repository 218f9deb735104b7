package view

import (
	"encoding/json"
	"fmt"
	"io"
	"regexp"
	"strings"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/cli"
	"github.com/ckptsidecar/ckptsidecar/internal/cli/term"
)

// The exit codes of the verdicts that do not simply mean to continue.
const (
	exitRepair = 10
	ExitAsk    = 20
	ExitUnsafe = 30
)

// ExitOfVerdict returns the exit code of a verdict.
func ExitOfVerdict(v ckpt.ResumeVerdict) int {
	switch v {
	case ckpt.VerdictFresh, ckpt.VerdictResume:
		return cli.ExitDone
	case ckpt.VerdictRepair:
		return exitRepair
	case ckpt.VerdictAsk:
		return ExitAsk
	default: // a verdict of a newer daemon, which is possibly not safe
		return ExitUnsafe
	}
}

// PlanShape is a plan with the state of its checkpoint, as the API writes it.
type PlanShape struct {
	*ckpt.Plan
	Checkpoint *CheckpointShape `json:"checkpoint"`
}

// PlanShapeOf returns a plan as the API writes it.
func PlanShapeOf(p *ckpt.Plan) PlanShape {
	s := PlanShape{Plan: p}
	if p.Checkpoint != nil {
		s.Checkpoint = CheckpointShapeOf(p.Checkpoint)
	}
	return s
}

// PlanText explains a plan to a person who was just woken up by it: the verdict, why, the
// facts, and what to type next.
func PlanText(w io.Writer, s *term.Style, p *ckpt.Plan) {
	term.Printf(w, "%s  run %s of %s: %s\n", verdictText(p.Verdict, s), p.Run, p.Agent, verdictMeaning[p.Verdict])
	for _, reason := range p.Reasons {
		term.Paragraph(w, s, 2, spoken(reason))
	}
	term.Println(w)
	facts := &term.Pairs{}
	facts.Add("epoch", epochText(p))
	if c := p.Checkpoint; c != nil {
		text := fmt.Sprintf("%s  number %d, %s, %s, saved %s", s.Bold(c.ID), c.Seq, c.Kind, term.Bytes(c.Size), term.Moment(c.CreatedAt))
		facts.Add("load", strings.TrimSpace(text+"  "+Marks(c, s)))
	}
	for _, skipped := range p.Skipped {
		facts.Add("passed over", fmt.Sprintf("%s  number %d, %s", skipped.ID, skipped.Seq, skipped.Reason))
	}
	if n := len(p.CompletedSteps); n > 0 {
		keys := names(p.CompletedSteps, func(c ckpt.CompletedStep) string { return c.Key })
		facts.Add("done", fmt.Sprintf("%s since: %s", term.Count(n, "step"), keys))
	}
	for _, step := range p.InterruptedSteps {
		facts.Add("interrupted", fmt.Sprintf("step %s (%s), begun %s", step.Key, step.Name, term.Moment(step.StartedAt)))
	}
	for _, o := range p.UncertainOperations {
		facts.Add("uncertain", fmt.Sprintf("operation %s (%s), begun %s", o.Key, o.Name, term.Moment(o.StartedAt)))
	}
	if p.Program != nil {
		left := term.Bytes(int64(len(p.Program.Remaining)))
		facts.Add("program", fmt.Sprintf("%s have run, %s are left", term.Count(p.Program.Executed, "byte"), left))
	}
	for _, more := range [][2]string{{"continue with", string(p.ContinuationPrompt)}, {"session", string(p.ExternalSession)}} {
		if more[1] != "" {
			facts.Add(more[0], FirstLine(more[1]))
		}
	}
	if p.AccumulatedMS > 0 {
		facts.Add("worked for", WorkedText(p.AccumulatedMS))
	}
	facts.Write(w, s)
	if next := nextSteps(p); len(next) > 0 {
		term.Printf(w, "\n%s\n", s.Bold("What to type next:"))
		for _, line := range next {
			term.Printf(w, "  %s\n", line)
		}
	}
}

var (
	ids     = regexp.MustCompile(`\b([0-9a-f]{8}-[0-9a-f]{4})-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b`)
	moments = regexp.MustCompile(`(?:at )?\d{4}-\d\d-\d\dT[\d:.]+Z \(([^)]+)\)`)
)

// spoken is a reason for a person: with short ids, and how long ago instead of a time.
func spoken(reason string) string {
	return moments.ReplaceAllString(ids.ReplaceAllString(reason, "$1"), "$1")
}

var verdictMeaning = map[ckpt.ResumeVerdict]string{
	ckpt.VerdictFresh:  "there is nothing to resume; begin anew",
	ckpt.VerdictResume: "it is safe to go on",
	ckpt.VerdictRepair: "it is safe to go on, with the changes below",
	ckpt.VerdictAsk:    "somebody must decide first",
	ckpt.VerdictUnsafe: "it is not safe to go on",
}

func verdictText(v ckpt.ResumeVerdict, s *term.Style) string {
	text := strings.ToUpper(string(v))
	switch v {
	case ckpt.VerdictFresh, ckpt.VerdictResume:
		return s.Green(text)
	case ckpt.VerdictRepair:
		return s.Yellow(text)
	default:
		return s.Red(text)
	}
}

func epochText(p *ckpt.Plan) string {
	if p.Claimed {
		return fmt.Sprintf("%d, which is yours now (attempt %d)", p.Epoch, p.Attempt)
	}
	return fmt.Sprintf("%d, not claimed", p.Epoch)
}

// nextSteps returns the commands that a person needs now. None of them claims the run for the shell in which it is typed.
func nextSteps(p *ckpt.Plan) []string {
	run := cli.RunFlag(p.Run)
	switch p.Verdict {
	case ckpt.VerdictAsk:
		return nextOfAsk(p)
	case ckpt.VerdictUnsafe:
		return nextOfUnsafe(p, run)
	}
	if !p.Claimed {
		return []string{
			ckpt.ExecCommand(p.Agent, p.Run, p.Command) + "   to have the agent started with all of this" + unknownCommand(p.Command),
		}
	}
	next := []string{fmt.Sprintf("ckptsidecar save %s FILE%s --epoch %d", p.Agent, run, p.Epoch)}
	if len(p.InterruptedSteps) > 0 {
		step := p.InterruptedSteps[0]
		next = append(next, fmt.Sprintf("ckptsidecar step begin %s %s%s --epoch %d   to do an interrupted step again; "+
			"--json above has an error result for it", p.Agent, ckpt.ShellWord(step.Key), run, p.Epoch))
	}
	if len(p.CompletedSteps) > 0 {
		next = append(next, fmt.Sprintf("ckptsidecar steps %s%s   for what is done and must not be done again", p.Agent, run))
	}
	return next
}

func nextOfAsk(p *ckpt.Plan) (next []string) {
	about := false
	for i := range p.UncertainOperations {
		o := &p.UncertainOperations[i]
		if !o.NeedsPerson() {
			continue
		}
		about = true
		next = append(next,
			fmt.Sprintf("Find out whether %s took effect, then say which:", o.Name),
			fmt.Sprintf("  %s --reason 'how you know'", ckpt.ResolveCommand(p.Agent, p.Run, o.Key)))
	}
	start := GoOn(p.Agent, p.Run, p.Command)
	switch {
	case about:
	case p.Prompt == nil:
		return append(next, "To have the question put, and to go on with the answer: "+start)
	default:
		next = append(next, Answers(p.Prompt)...)
	}
	return append(next, "Then start the agent again: "+start)
}

// unknownCommand says that nobody has recorded how an agent is started.
func unknownCommand(c *ckpt.Command) string {
	if c == nil {
		return "; " + ckpt.CommandUnknown
	}
	return ""
}

// GoOn says how a person has the agent of a run started.
func GoOn(agent, run string, c *ckpt.Command) string {
	return ckpt.ExecCommand(agent, run, c) + unknownCommand(c)
}

// Answers returns the possible answers to a prompt, with their effects.
func Answers(p *ckpt.Prompt) []string {
	switch p.Kind {
	case ckpt.PromptQuestion:
		return answersOfQuestion(p)
	case ckpt.PromptOperation:
		result := ""
		if p.HasSchema() {
			result = " --data JSON"
		}
		return []string{
			fmt.Sprintf("ckptsidecar prompts answer %s it_did%s    if it took effect: it is not done again", p.ID, result),
			fmt.Sprintf("ckptsidecar prompts answer %s it_did_not    if it did not: it may be begun again", p.ID),
			fmt.Sprintf("ckptsidecar prompts answer %s repeat        if nobody can know: it may then happen twice", p.ID),
		}
	}
	lost := ""
	if n := OperationsOf(p.MemoryDiff); n > 0 {
		lost = fmt.Sprintf(" (%s of the state would be lost: ckptsidecar prompts show %s)", term.Count(n, "change"), p.ID)
	}
	return []string{
		fmt.Sprintf("ckptsidecar prompts answer %s resume          to go on as it is", p.ID),
		fmt.Sprintf("ckptsidecar prompts answer %s reinitialize    to begin anew; what was saved stays as history%s", p.ID, lost),
		fmt.Sprintf("ckptsidecar prompts answer %s abandon         to give the run up", p.ID),
	}
}

func answersOfQuestion(p *ckpt.Prompt) (ways []string) {
	data := ""
	if p.HasSchema() {
		data = " --data JSON"
	}
	if p.Choices == nil {
		if data == "" {
			data = " [--data JSON]"
		}
		return []string{fmt.Sprintf("ckptsidecar prompts answer %s --choice TEXT%s", p.ID, data)}
	}
	for _, choice := range p.Choices {
		ways = append(ways, fmt.Sprintf("ckptsidecar prompts answer %s --choice %s%s", p.ID, ckpt.ShellWord(choice), data))
	}
	return ways
}

func nextOfUnsafe(p *ckpt.Plan, run string) []string {
	if len(p.Skipped) > 0 { // no checkpoint can be read back intact
		return []string{
			"ckptsidecar verify   to see all that is damaged",
			fmt.Sprintf("ckptsidecar list %s%s   for what was saved", p.Agent, run),
			fmt.Sprintf("ckptsidecar import FILE   to bring %s back from an export, or serve a backup of the database", p.Agent),
			fmt.Sprintf("ckptsidecar run end %s failed%s   to give it up; the next resume begins anew, "+
				"and what was saved stays as history", p.Agent, run),
		}
	}
	force := strings.Replace(ckpt.ExecCommand(p.Agent, p.Run, p.Command), "ckptsidecar exec ", "ckptsidecar exec --force ", 1)
	return []string{
		fmt.Sprintf("ckptsidecar run show %s%s   to see who owns it", p.Agent, run),
		force + "   to take it over all the same; the owner's writes are refused from then on" + unknownCommand(p.Command),
	}
}

// OperationsOf returns the number of operations in an RFC 6902 patch.
func OperationsOf(patch ckpt.JSON) int {
	var list []json.RawMessage
	_ = json.Unmarshal(patch, &list) // an invalid patch counts as empty
	return len(list)
}

// names lists the first few of many names.
func names[T any](list []T, name func(T) string) string {
	const most = 8
	var words []string
	for i, v := range list {
		if i == most {
			return strings.Join(words, ", ") + fmt.Sprintf(" and %d more", len(list)-most)
		}
		words = append(words, name(v))
	}
	return strings.Join(words, ", ")
}

// WorkedText returns a length of time for people, in at most two units.
func WorkedText(ms int64) string {
	d := time.Duration(ms) * time.Millisecond
	switch {
	case d < time.Second:
		return d.String()
	case d < time.Minute:
		return d.Round(100 * time.Millisecond).String()
	case d < time.Hour:
		return d.Round(time.Second).String()
	}
	return strings.TrimSuffix(d.Round(time.Minute).String(), "0s")
}

// FirstLine returns the first line of a text, with a mark if there is more.
func FirstLine(text string) string {
	line, _, more := strings.Cut(strings.TrimSpace(text), "\n")
	if more {
		return line + " …"
	}
	return line
}

// CoversCheckpoints reports whether a finding is open and makes checkpoints suspect.
func CoversCheckpoints(f ckpt.Finding) bool {
	return f.Marks() && f.Closed == ""
}

// Marks returns what a reader must know about a checkpoint at a glance.
func Marks(c *ckpt.Checkpoint, s *term.Style) string {
	var list []string
	if c.Pinned {
		list = append(list, s.Green("pinned"))
	}
	if c.Suspect {
		list = append(list, s.Yellow("suspect"))
	}
	return strings.Join(list, " ")
}

// CopiedText says when the journal was last copied into the database file.
func CopiedText(s *ckpt.Status) string {
	if s.Database.LastWALCheckpoint.IsZero() {
		return "not yet copied into the database"
	}
	return "copied into the database " + term.Ago(s.Now.Time, s.Database.LastWALCheckpoint.Time)
}
