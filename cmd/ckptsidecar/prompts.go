package main

import (
	"context"
	"slices"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/cli"
	"github.com/ckptsidecar/ckptsidecar/internal/cli/term"
	"github.com/ckptsidecar/ckptsidecar/internal/cli/view"
)

type promptsCmd struct {
	List   promptsListCmd   `cmd:"" default:"withargs" help:"List the questions that wait for an operator."`
	Show   promptsShowCmd   `cmd:"" help:"Show one, with what a new beginning would lose."`
	Answer promptsAnswerCmd `cmd:"" help:"Answer one."`
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
		return term.WriteJSON(a.Data(), all)
	case len(all.Prompts) == 0:
		a.Tell("nothing waits for an answer")
		return nil
	}
	for i := range all.Prompts {
		if i > 0 {
			term.Println(a.Stdout)
		}
		promptText(a, &all.Prompts[i])
	}
	c.Paged.More(a.App, all.Next)
	return nil
}

func promptText(a *app, p *ckpt.Prompt) {
	term.Printf(a.Stdout, "%s  run %s of %s, asked %s\n", a.Out.Bold(p.ID), p.Run, p.Agent, term.Moment(p.At))
	term.Printf(a.Stdout, "  %s\n", p.Question)
	if p.Reason != "" {
		term.Printf(a.Stdout, "  %s\n", p.Reason)
	}
	if p.Choice != "" {
		term.Printf(a.Stdout, "  answered %s by %s: %s\n", term.Moment(p.AnsweredAt), p.AnsweredBy, a.Out.Green(string(p.Choice)))
		return
	}
	for _, line := range view.Answers(p) {
		term.Printf(a.Stdout, "  %s\n", line)
	}
}

type promptsShowCmd struct {
	ID string `arg:"" help:"The prompt's id."`
}

func (c *promptsShowCmd) Run(ctx context.Context, a *app) error {
	if err := cli.Checked(ckpt.CheckID(c.ID)); err != nil {
		return err
	}
	p, err := findPrompt(ctx, a, c.ID)
	switch {
	case err != nil:
		return err
	case a.JSON:
		return term.WriteJSON(a.Data(), p)
	}
	promptText(a, p)
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

// findPrompt looks through the pages; the API has no call for one.
func findPrompt(ctx context.Context, a *app, id string) (found *ckpt.Prompt, err error) {
	every := cli.Paged{All: true}
	_, err = every.Read(func(before string, limit int) (ckpt.Ref, error) {
		page, err := a.Client().Prompts(ctx, ckpt.PromptFilter{Before: before, Limit: limit})
		if err != nil {
			return "", err
		}
		if i := slices.IndexFunc(page.Prompts, func(p ckpt.Prompt) bool { return p.ID == id }); i >= 0 {
			found = &page.Prompts[i]
			return "", nil
		}
		return page.Next, nil
	})
	if err == nil && found == nil {
		err = ckpt.Errorf(ckpt.CodeNotFound, "there is no prompt %s: see all with ckptsidecar prompts --answered", id)
	}
	return found, err
}

type promptsAnswerCmd struct {
	ID     string `arg:"" help:"The prompt's id."`
	Choice string `arg:"" enum:"resume,reinitialize,abandon" help:"resume: go on as it is. reinitialize: begin anew. abandon: give the run up."`
	Reason string `help:"Why, for the audit log." placeholder:"TEXT"`
}

func (c *promptsAnswerCmd) Run(ctx context.Context, a *app) error {
	answer := ckpt.PromptAnswer{ID: c.ID, Choice: ckpt.PromptChoice(c.Choice), Reason: c.Reason}
	if err := cli.Checked(answer.Check()); err != nil {
		return err
	}
	p, _, err := a.Client().AnswerPrompt(ctx, answer)
	switch {
	case err != nil:
		return err
	case a.JSON:
		return term.WriteJSON(a.Data(), p)
	}
	term.Printf(a.Stdout, "%s  answered: %s\n", p.ID, p.Choice)
	run := cli.RunFlag(p.Run)
	switch ckpt.PromptChoice(p.Choice) {
	case ckpt.ChoiceAbandon:
		a.Tell("run %s of %s has failed for good", p.Run, p.Agent)
	case ckpt.ChoiceReinitialize:
		a.Tell("run %s of %s begins anew when it is resumed: ckptsidecar resume %s%s", p.Run, p.Agent, p.Agent, run)
	default:
		a.Tell("run %s of %s may go on: ckptsidecar resume %s%s", p.Run, p.Agent, p.Agent, run)
	}
	return nil
}
