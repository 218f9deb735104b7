package view

import (
	"context"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/cli"
	"github.com/ckptsidecar/ckptsidecar/internal/cli/term"
)

// TellDrift reports new findings in addition to an answer. It reports a critical verdict
// each time, because checkpoints that are saved then are suspect.
func TellDrift(ctx context.Context, a *cli.App, v *ckpt.DriftVerdict, ref ckpt.RunRef) {
	if v == nil || v.Verdict != ckpt.SeverityCritical && len(v.Findings) == 0 {
		return
	}
	why := string(v.Advice)
	if why == "" && len(v.Findings) > 0 {
		why = v.Findings[0].Message
	}
	a.Tell("drift, %s: %s (see: ckptsidecar drift %s%s)", SeverityText(v.Verdict, a.Err), why, ref.Agent, cli.RunFlag(ref.Run))
	if v.Clean != "" {
		a.Tell("to go back to %s, stop the agent, and then: %s", v.Clean, CommandOf(ctx, a, ref))
	}
}

// CommandOf says how a person has the agent of a run started.
func CommandOf(ctx context.Context, a *cli.App, ref ckpt.RunRef) string {
	run, err := a.Client().Run(ctx, ref)
	if err != nil { // what was asked is answered: the command is only more help
		return GoOn(ref.Agent, ref.Run, nil)
	}
	return GoOn(run.Agent, run.Run, run.Command)
}

// SeverityText returns a severity in its color.
func SeverityText(s ckpt.Severity, st *term.Style) string {
	switch s {
	case ckpt.SeverityCritical:
		return st.Red(string(s))
	case ckpt.SeverityWarn:
		return st.Yellow(string(s))
	case ckpt.SeverityNone:
		return st.Green("no drift")
	case ckpt.SeverityInfo:
	}
	return string(s)
}
