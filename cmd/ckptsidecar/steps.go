package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/cli"
	"github.com/ckptsidecar/ckptsidecar/internal/cli/term"
	"github.com/ckptsidecar/ckptsidecar/internal/cli/view"
	"github.com/ckptsidecar/ckptsidecar/internal/survey"
	"github.com/ckptsidecar/ckptsidecar/internal/wellformed"
)

type stepsCmd struct {
	Agent  string `arg:"" help:"The agent's name."`
	InRun  string `name:"run" help:"The run. Default: under exec its run, else main, else the one that changed last." placeholder:"NAME"`
	Status string `enum:",started,succeeded,failed,interrupted" default:"" help:"Only steps of this status: ${step_statuses}." placeholder:"STATUS"`
	cli.Paged
	cli.Following
}

func (c *stepsCmd) Run(ctx context.Context, a *app) error {
	ref, err := a.RefToRead(ctx, c.Agent, c.InRun, c.Paged.Check(), c.Following.Check(&c.Paged))
	if err != nil {
		return err
	}
	if c.Follow {
		return c.follow(ctx, a, ref)
	}
	all := &ckpt.StepPage{Steps: []ckpt.Step{}}
	all.Next, err = c.Paged.Read(func(before string, limit int) (ckpt.Ref, error) {
		page, err := a.Client().Steps(ctx, ref, ckpt.ListFilter{Status: c.Status, Before: before, Limit: limit})
		if err != nil {
			return "", err
		}
		all.Steps = append(all.Steps, page.Steps...)
		return page.Next, nil
	})
	switch {
	case err != nil:
		return err
	case a.JSON:
		return a.WriteJSON(all)
	case len(all.Steps) == 0:
		a.Tell("no steps of %s match", c.Agent)
		return nil
	}
	stepTable(all.Steps, a.Out).Write(a.Stdout, a.Out)
	c.Paged.More(a.App, all.Next)
	return nil
}

func stepTable(steps []ckpt.Step, style *term.Style) *term.Table {
	t := term.NewTable("KEY", "~NAME", "STATUS", ">ATTEMPT", "BEGAN", ">TOOK", "~RESULT OR ERROR")
	for i := range steps {
		s := &steps[i]
		t.Add(s.Key, s.Name, stepStatusText(s.Status, style), fmt.Sprint(s.Attempt), style.Time(s.StartedAt), tookText(s), outcome(s.Result, s.Error))
	}
	return t
}

// follow prints steps as they begin and end.
func (c *stepsCmd) follow(ctx context.Context, a *app, ref ckpt.RunRef) error {
	from := "" // the first page that still has an open step, or the last page
	return cli.Follow(ctx, a.App, cli.Watched[ckpt.Step]{
		Concerns: func(change *survey.Change) bool {
			return change.Agent == c.Agent && change.Run == cmp.Or(ref.Run, ckpt.MainRun) && change.What == survey.ChangedStep
		},
		Read: func(string) (steps []ckpt.Step, _ ckpt.Ref, err error) {
			settled := true
			err = cli.EachPage(from, func(at string) (string, bool, error) {
				page, err := a.Client().Steps(ctx, ref, ckpt.ListFilter{Status: c.Status, Before: at, Limit: ckpt.MaxLimit})
				switch {
				case ckpt.CodeOf(err) == ckpt.CodeNotFound:
					return "", false, nil
				case err != nil:
					return "", false, err
				}
				steps = append(steps, page.Steps...)
				open := slices.ContainsFunc(page.Steps, func(s ckpt.Step) bool { return s.Status == ckpt.StepStarted })
				if settled = settled && !open; settled && page.Next != "" {
					from = string(page.Next)
				}
				return string(page.Next), page.Next != "", nil
			})
			slices.Reverse(steps)
			return steps, "", err
		},
		Version: func(s *ckpt.Step) string { return fmt.Sprint(s.Key, " ", s.Attempt, s.Status) },
		Table:   func(steps []ckpt.Step) *term.Table { return stepTable(steps, a.Out) },
	})
}

func stepStatusText(status ckpt.StepStatus, s *term.Style) string {
	switch status {
	case ckpt.StepSucceeded:
		return s.Green(string(status))
	case ckpt.StepFailed:
		return s.Red(string(status))
	case ckpt.StepInterrupted:
		return s.Yellow(string(status))
	default:
		return string(status)
	}
}

func tookText(s *ckpt.Step) string {
	if s.DurationMS == nil {
		return "-"
	}
	return view.WorkedText(*s.DurationMS)
}

type stepCmd struct {
	Begin  stepBeginCmd  `cmd:"" help:"Begin a step. Prints started, or succeeded if the step was done before and must not be repeated."`
	Finish stepFinishCmd `cmd:"" help:"Finish a step."`
	Record stepRecordCmd `cmd:"" help:"Record a step that has ended."`
}

// ofStep has the arguments that every step command has.
type ofStep struct {
	Agent string `arg:"" help:"The agent's name."`
	Key   string `arg:"" help:"The step's key: the same work has the same key whenever it is tried."`
	InRun string `name:"run" help:"The run. Default: main, or under exec its run." placeholder:"NAME"`
	Epoch *int64 `help:"The run's epoch that you hold; a newer owner's run then refuses it." placeholder:"N"`
}

// began has the flags for the beginning of a step.
type began struct {
	Name string `help:"What is done, such as the tool's name. Default: the key." placeholder:"TEXT"`
	Args string `help:"The arguments, as JSON." placeholder:"JSON"`
}

// stepEnd has the flags for the end of a step.
type stepEnd struct {
	Failed       bool     `help:"The step failed. Implied by --error."`
	Result       string   `help:"What came out, as JSON." placeholder:"JSON"`
	Error        string   `help:"What went wrong." placeholder:"TEXT"`
	Negative     bool     `help:"The answer was no: a search that found nothing, files that differ. It is no error."`
	Turn         string   `help:"The model's turn: the id of its answer that made this call." placeholder:"ID"`
	DurationMS   *int64   `name:"duration-ms" help:"How long it took. Default: as measured." placeholder:"N"`
	InputTokens  *int64   `help:"Tokens that a model read." placeholder:"N"`
	OutputTokens *int64   `help:"Tokens that a model wrote." placeholder:"N"`
	CostUSD      *float64 `name:"cost-usd" help:"What it cost." placeholder:"X"`
	Progress     *float64 `help:"How far the run has come now." placeholder:"X"`
}

func (e *stepEnd) into(r *ckpt.StepRequest) {
	r.Status = ckpt.StepSucceeded
	if e.Failed || e.Error != "" {
		r.Status = ckpt.StepFailed
	}
	r.Result, r.Error, r.Turn = jsonOf(e.Result), ckpt.Ref(e.Error), ckpt.Ref(e.Turn)
	if e.Negative {
		r.Outcome = ckpt.StepNegative
	}
	r.DurationMS, r.InputTokens, r.OutputTokens, r.CostUSD, r.Progress = e.DurationMS, e.InputTokens, e.OutputTokens, e.CostUSD, e.Progress
}

func (b *began) into(r *ckpt.StepRequest) {
	r.Name, r.Args = b.Name, jsonOf(b.Args)
	if r.Name == "" {
		r.Name = r.Key
	}
}

type stepBeginCmd struct {
	ofStep
	began
}

func (c *stepBeginCmd) Run(ctx context.Context, a *app) error {
	r := ckpt.StepRequest{Key: c.Key}
	c.began.into(&r)
	return c.ofStep.put(ctx, a, r)
}

type stepRecordCmd struct {
	ofStep
	began
	stepEnd
}

func (c *stepRecordCmd) Run(ctx context.Context, a *app) error {
	r := ckpt.StepRequest{Key: c.Key}
	c.began.into(&r)
	c.stepEnd.into(&r)
	return c.ofStep.put(ctx, a, r)
}

func (c *ofStep) put(ctx context.Context, a *app, r ckpt.StepRequest) error {
	ref := a.Ref(c.Agent, c.InRun, c.Epoch)
	if err := cli.Checked(ref.Check(), wellformed.Step(&r, false)); err != nil {
		return err
	}
	step, _, err := a.Client().BeginStep(ctx, ref, r)
	if err != nil {
		return err
	}
	return a.showStep(ctx, step, ref)
}

type stepFinishCmd struct {
	ofStep
	stepEnd
}

func (c *stepFinishCmd) Run(ctx context.Context, a *app) error {
	ref, r := a.Ref(c.Agent, c.InRun, c.Epoch), ckpt.StepRequest{Key: c.Key}
	c.stepEnd.into(&r)
	if err := cli.Checked(ref.Check(), wellformed.Step(&r, true)); err != nil {
		return err
	}
	step, _, err := a.Client().FinishStep(ctx, ref, r)
	if err != nil {
		return err
	}
	return a.showStep(ctx, step, ref)
}

// showStep prints only the status on standard output, so that this works in a shell:
//
//	if [ "$(ckptsidecar step begin …)" = started ]
func (a *app) showStep(ctx context.Context, s *ckpt.Step, ref ckpt.RunRef) error {
	if a.JSON {
		return a.WriteJSON(s)
	}
	term.Println(a.Stdout, s.Status)
	switch {
	case s.Replayed:
		a.Tell("step %s was already done, at %s: do not repeat it%s", s.Key, term.Moment(s.EndedAt), resultText(s.Result))
	case s.Attempt > 1:
		a.Tell("step %s, attempt %d", s.Key, s.Attempt)
	}
	view.TellDrift(ctx, a.App, s.Drift, ref)
	return nil
}
