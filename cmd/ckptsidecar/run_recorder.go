package main

import (
	"context"
	"fmt"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/cli/term"
	"github.com/ckptsidecar/ckptsidecar/internal/cli/view"
	"github.com/ckptsidecar/ckptsidecar/internal/ipc/client"
	"github.com/ckptsidecar/ckptsidecar/internal/survey"
)

type runRecorderCmd struct {
	Agent string `arg:"" help:"The agent's name."`
	InRun string `name:"run" help:"The run. Default: under exec its run, else main, else the one that changed last." placeholder:"NAME"`
	From  string `help:"Start of the view: a time, or how long ago, such as 2h. Default: the beginning of the run." placeholder:"TIME"`
	To    string `help:"End of the view: a time, or how long ago. Default: the end of the run." placeholder:"TIME"`
	Bins  int    `help:"Where a part has more entries than this, they are counted in so many bins (with --json)." placeholder:"N"`
}

// Run shows who ran a run and when, and what the result was. The complete data is in --json.
func (c *runRecorderCmd) Run(ctx context.Context, a *app) error {
	q := survey.RecorderQuery{Bins: c.Bins}
	from, err := instant("--from", c.From, time.Now())
	to, err2 := instant("--to", c.To, time.Now())
	q.From, q.To = from, to
	ref, err := a.RefToRead(ctx, c.Agent, c.InRun, err, err2, q.Check())
	if err != nil {
		return err
	}
	v, err := client.Operator{Client: a.Client()}.Recorder(ctx, ref, q)
	switch {
	case err != nil:
		return err
	case a.JSON:
		return a.WriteJSON(v)
	}
	p := &term.Pairs{}
	p.Add("run", a.Out.Bold(v.Run)+" of "+v.Agent)
	p.Add("status", view.RunStatus(v.Status, a.Out))
	p.Add("worked for", view.WorkedText(v.Sums.WorkedMS))
	p.Add("steps", fmt.Sprintf("%d, %d failed", v.Sums.Steps, v.Sums.Failed))
	p.Add("tokens", fmt.Sprintf("%d in, %d out", v.Sums.InputTokens, v.Sums.OutputTokens))
	p.Add("cost", fmt.Sprintf("$%.2f", v.Sums.CostUSD))
	p.Add("checkpoints", fmt.Sprintf("%d of %d are kept, %s", v.Sums.Checkpoints, v.Sums.Saves, term.Bytes(v.Sums.StoredBytes)))
	p.Add("findings", fmt.Sprint(v.Sums.Findings))
	p.Write(a.Stdout, a.Out)
	t := term.NewTable(">ATTEMPT", "FROM", "TO", ">LASTED", "ENDED", ">PID")
	for _, s := range v.Segments {
		to, how := s.To, s.How
		if to.IsZero() {
			to, how = v.At, "goes on"
		}
		lasted := view.WorkedText(to.Sub(s.From.Time).Milliseconds())
		t.Add(fmt.Sprint(s.Attempt), term.Moment(s.From), momentOr(s.To, "-"), lasted, how, pidText(s.PID))
	}
	t.Write(a.Stdout, a.Out)
	return nil
}

func momentOr(t ckpt.Time, none string) string {
	if t.IsZero() {
		return none
	}
	return term.Moment(t)
}
