package main

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/cli"
	"github.com/ckptsidecar/ckptsidecar/internal/cli/term"
	"github.com/ckptsidecar/ckptsidecar/internal/cli/view"
	"github.com/ckptsidecar/ckptsidecar/internal/wellformed"
)

type promptsCmd struct {
	List   promptsListCmd   `cmd:"" default:"withargs" help:"List the questions that wait for a person."`
	Show   promptsShowCmd   `cmd:"" help:"Show a prompt, and what a new beginning would lose."`
	Answer promptsAnswerCmd `cmd:"" help:"Answer a prompt."`
	Ask    promptsAskCmd    `cmd:"" help:"Ask a person a question for a run, and wait for the answer."`
	Wait   promptsWaitCmd   `cmd:"" help:"Wait for the answer to a prompt."`
}

type promptsListCmd struct {
	Answered bool `help:"Also those that have been answered."`
	cli.Paged
}

func (c *promptsListCmd) Run(ctx context.Context, a *app) error {
	if err := c.Paged.Check(); err != nil {
		return err
	}
	all := &ckpt.PromptPage{Prompts: []ckpt.Prompt{}}
	var err error
	all.Next, err = c.Paged.Read(func(before string, limit int) (ckpt.Ref, error) {
		page, err := a.Client().Prompts(ctx, ckpt.PromptFilter{Open: !c.Answered, Before: before, Limit: limit})
		if err != nil {
			return "", err
		}
		all.Prompts = append(all.Prompts, page.Prompts...)
		return page.Next, nil
	})
	switch {
	case err != nil:
		return err
	case a.JSON:
		return a.WriteJSON(all)
	case len(all.Prompts) == 0:
		a.Tell("nothing waits for an answer")
		return nil
	}
	for i := range all.Prompts {
		if i > 0 {
			term.Println(a.Stdout)
		}
		promptText(a, &all.Prompts[i], a.Out.Wide())
	}
	c.Paged.More(a.App, all.Next)
	return nil
}

// promptText shows a prompt. In a list it omits the reason of a decision; `prompts show` prints it.
func promptText(a *app, p *ckpt.Prompt, whole bool) {
	term.Printf(a.Stdout, "%s  run %s of %s, asked %s\n", a.Out.Bold(a.Out.ID(p.ID)), p.Run, p.Agent, term.Moment(p.At))
	term.Paragraph(a.Stdout, a.Out, 2, p.Question)
	more := p.Reason != "" && p.Kind != ckpt.PromptQuestion && !whole // a question has a short reason
	if p.Reason != "" && !more {
		term.Paragraph(a.Stdout, a.Out, 2, p.Reason)
	}
	if p.HasSchema() {
		term.Println(a.Stdout, a.Out.Fit("  data as in "+oneLine(p.Schema)))
	}
	switch p.Status {
	case ckpt.PromptAnswered:
		term.Printf(a.Stdout, "  answered %s by %s: %s\n", term.Moment(p.AnsweredAt), p.AnsweredBy, a.Out.Green(answerText(p)))
		return
	case ckpt.PromptWithdrawn:
		term.Printf(a.Stdout, "  withdrawn %s: the run went on or ended without an answer\n", term.Moment(p.AnsweredAt))
		return
	case ckpt.PromptExpired:
		term.Printf(a.Stdout, "  expired %s\n", term.Moment(p.ExpiresAt))
		return
	}
	if !p.ExpiresAt.IsZero() {
		term.Printf(a.Stdout, "  expires %s\n", term.Moment(p.ExpiresAt))
	}
	for _, line := range view.Answers(p) {
		answerLine(a, term.Escape(line))
	}
	if more {
		term.Printf(a.Stdout, "  ckptsidecar prompts show %s tells more\n", p.ID)
	}
}

// answerLine shows a command, and its explanation on the same line or below it.
func answerLine(a *app, line string) {
	command, why, _ := strings.Cut(line, "  ")
	if width := a.Out.Columns(); why == "" || width == 0 || term.Visible(line)+2 <= width {
		term.Println(a.Stdout, "  "+line)
		return
	}
	term.Println(a.Stdout, "  "+command)
	a.Out.Hanging(a.Stdout, "      ", strings.TrimSpace(why))
}

// answerText returns an answer in one line.
func answerText(p *ckpt.Prompt) string {
	if len(p.Data) == 0 {
		return string(p.Choice)
	}
	return strings.TrimSpace(string(p.Choice) + " " + oneLine(p.Data))
}

type promptsShowCmd struct {
	ID string `arg:"" help:"The prompt's id, or the beginning of it."`
}

func (c *promptsShowCmd) Run(ctx context.Context, a *app) error {
	id, err := a.PromptID(ctx, c.ID)
	if err != nil {
		return err
	}
	p, err := a.Client().Prompt(ctx, id)
	switch {
	case err != nil:
		return err
	case a.JSON:
		return a.WriteJSON(p)
	}
	promptText(a, p, true)
	if view.OperationsOf(p.MemoryDiff) == 0 || p.Checkpoint == "" {
		return nil
	}
	from, err := a.Client().Checkpoint(ctx, string(p.Checkpoint), true)
	if err != nil {
		return err
	}
	term.Printf(a.Stdout, "\nTo begin anew would lose, of checkpoint %s:\n", p.Checkpoint)
	return pathDiff(a, from.State, []byte(p.MemoryDiff))
}

type promptsAnswerCmd struct {
	ID     string `arg:"" help:"The prompt's id, or the beginning of it."`
	Answer string `arg:"" optional:"" name:"choice" help:"${answer}"`
	Choice string `help:"The same as a flag." placeholder:"TEXT"`
	Data   string `help:"What comes with the answer: for a question its data, for it_did the operation's result. JSON, or @FILE, or - for standard input." placeholder:"JSON"`
	Reason string `help:"Why, for the audit log." placeholder:"TEXT"`

	LeaveUncertain bool `help:"With reinitialize or abandon: although nobody knows how an operation ended. It stays uncertain. Needs --reason."`
}

func (c *promptsAnswerCmd) Run(ctx context.Context, a *app) error {
	if c.Answer != "" && c.Choice != "" && c.Answer != c.Choice {
		return cli.Usagef("give one choice, not two: %s and %s", c.Answer, c.Choice)
	}
	data, err := a.jsonArgument(ctx, c.Data)
	if err != nil {
		return err
	}
	id, err := a.PromptID(ctx, c.ID)
	if err != nil {
		return err
	}
	answer := ckpt.PromptAnswer{ID: id, Choice: ckpt.PromptChoice(cmp.Or(c.Choice, c.Answer)), Data: data, Reason: c.Reason, LeaveUncertain: c.LeaveUncertain}
	if err := cli.Checked(wellformed.PromptAnswer(&answer)); err != nil {
		return err
	}
	p, again, err := a.Client().AnswerPrompt(ctx, answer)
	switch {
	case err != nil:
		return err
	case a.JSON:
		return a.WriteJSON(p)
	}
	term.Printf(a.Stdout, "%s  answered: %s\n", p.ID, answerText(p))
	switch choice := ckpt.PromptChoice(p.Choice); {
	case again:
		a.Tell("it was answered so before, at %s", term.Moment(p.AnsweredAt))
	case p.Kind == ckpt.PromptQuestion:
		a.Tell("run %s of %s has the answer, or gets it when it is resumed", p.Run, p.Agent)
	case choice == ckpt.ChoiceItDid:
		a.Tell("operation %s is recorded as succeeded: it is not done again; to go on: %s", p.Operation, whoGoesOn(ctx, a, p))
	case choice == ckpt.ChoiceItDidNot:
		a.Tell("operation %s is recorded as not done: it may be begun again; to go on: %s", p.Operation, whoGoesOn(ctx, a, p))
	case choice == ckpt.ChoiceRepeat:
		a.Tell("operation %s may be begun again; to go on: %s", p.Operation, whoGoesOn(ctx, a, p))
	case choice == ckpt.ChoiceAbandon:
		a.Tell("run %s of %s has failed for good", p.Run, p.Agent)
	case choice == ckpt.ChoiceReinitialize:
		a.Tell("run %s of %s begins anew: %s", ckpt.BaseRun(p.Run), p.Agent, whoGoesOn(ctx, a, p))
	default:
		a.Tell("run %s of %s may go on: %s", p.Run, p.Agent, whoGoesOn(ctx, a, p))
	}
	return nil
}

// whoGoesOn says who goes on with a run after an answer, or with which command a person has its agent started.
func whoGoesOn(ctx context.Context, a *app, p *ckpt.Prompt) string {
	name := ckpt.BaseRun(p.Run)
	run, err := a.Client().Run(ctx, ckpt.RunRef{Agent: p.Agent, Run: name})
	switch {
	case err != nil:
		return view.GoOn(p.Agent, name, nil)
	case run.WaitingPID != 0:
		return fmt.Sprintf("exec (pid %d) goes on with it", run.WaitingPID)
	case run.Status == ckpt.RunRunning:
		return fmt.Sprintf("process %d goes on with it", run.PID)
	}
	return view.GoOn(p.Agent, name, run.Command)
}

// jsonArgument returns JSON from the command line: the text itself, or the content of the file that
// @FILE or - names.
func (a *app) jsonArgument(ctx context.Context, text string) (ckpt.JSON, error) {
	name, isFile := strings.CutPrefix(text, "@")
	switch {
	case text == "":
		return nil, nil
	case isFile || text == "-":
		read, err := a.Read(ctx, name)
		return ckpt.JSON(read), err
	}
	return ckpt.JSON(text), nil
}

type promptsAskCmd struct {
	Agent    string        `arg:"" help:"The agent's name."`
	Question string        `arg:"" help:"What a person shall decide."`
	InRun    string        `name:"run" help:"The run. Default: main, or under exec its run." placeholder:"NAME"`
	Epoch    *int64        `help:"The run's epoch that you hold; a newer owner's run then refuses it." placeholder:"N"`
	Key      string        `help:"The same at each attempt: asked again under it, it is the same question." placeholder:"KEY"`
	Choice   []string      `help:"An allowed answer. Without any, every answer is allowed." placeholder:"TEXT" sep:"none"`
	Schema   string        `help:"The JSON Schema of the data of the answer: JSON, or @FILE." placeholder:"JSON"`
	Expires  ckpt.Duration `help:"How long the question stays open, such as 1h. Default: for ever." placeholder:"TIME"`
	Reason   string        `help:"Why it is asked, for the person." placeholder:"TEXT"`
	Suspend  bool          `help:"If there is no answer yet, suspend the run and do not wait."`
	NoWait   bool          `help:"Do not wait: print the prompt as it is."`
}

// Run prints the answer: with --json the prompt, else the choice and the data.
func (c *promptsAskCmd) Run(ctx context.Context, a *app) error {
	ref := a.Ref(c.Agent, c.InRun, c.Epoch)
	schema, err := a.jsonArgument(ctx, c.Schema)
	if err != nil {
		return err
	}
	r := ckpt.QuestionRequest{Agent: ref.Agent, Run: ref.Run, Epoch: ref.Epoch, Key: c.Key, Question: c.Question, Reason: c.Reason,
		Choices: c.Choice, Schema: schema, Expires: c.Expires, Suspend: c.Suspend}
	if err := cli.Checked(wellformed.Question(&r)); err != nil {
		return err
	}
	p, _, err := a.Client().AskQuestion(ctx, r)
	if err != nil {
		return err
	}
	if p.Status == ckpt.PromptOpen {
		a.Tell("prompt %s waits for an answer", p.ID)
		for _, line := range view.Answers(p) {
			a.Tell("  %s", line)
		}
		if !c.NoWait && !c.Suspend {
			if p, err = a.Client().WaitPrompt(ctx, p.ID); err != nil {
				return err
			}
		}
	}
	return a.showAnswer(p)
}

// showAnswer prints an answer for a program. If the question has no answer, it prints the id of an
// open question, or fails with a conflict.
func (a *app) showAnswer(p *ckpt.Prompt) error {
	if a.JSON {
		return a.WriteJSON(p)
	}
	switch p.Status {
	case ckpt.PromptOpen:
		term.Println(a.Stdout, p.ID)
	case ckpt.PromptAnswered:
		if p.Choice != "" {
			term.Println(a.Stdout, string(p.Choice))
		}
		if len(p.Data) > 0 {
			term.Println(a.Stdout, oneLine(p.Data))
		}
	default:
		return ckpt.Errorf(ckpt.CodeConflict, "prompt %s cannot be answered: it is %s", p.ID, p.Status)
	}
	return nil
}

type promptsWaitCmd struct {
	ID string `arg:"" help:"The prompt's id, or the beginning of it."`
}

// Run waits, even across a restart of the daemon, and prints the answer.
func (c *promptsWaitCmd) Run(ctx context.Context, a *app) error {
	id, err := a.PromptID(ctx, c.ID)
	if err != nil {
		return err
	}
	p, err := a.Client().WaitPrompt(ctx, id)
	if err != nil {
		return err
	}
	return a.showAnswer(p)
}
