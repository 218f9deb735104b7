package service

import (
	"context"
	"errors"
	"fmt"

	"github.com/ckptsidecar/ckptsidecar/internal/cli"
	"github.com/ckptsidecar/ckptsidecar/internal/cli/term"
)

// Command installs and manages the service.
type Command struct {
	Install   installCmd   `cmd:"" help:"Install the daemon as a service that starts at boot, and start it. An existing installation is updated."`
	Uninstall uninstallCmd `cmd:"" help:"Stop and remove the service. Checkpoints and settings stay."`
	Start     startCmd     `cmd:"" help:"Start the service."`
	Stop      stopCmd      `cmd:"" help:"Stop the service. Agents cannot reach it until it starts again."`
	Restart   restartCmd   `cmd:"" help:"Restart the service."`
	Status    statusCmd    `cmd:"" help:"Show the state of the service. Exits with 0 if it runs, 1 if it does not, 3 if it is not installed."`
}

// flags say which service is meant.
type flags struct {
	User   bool `help:"Your own service instead of the system's."`
	DryRun bool `help:"Only say what would be done."`
}

type installCmd struct {
	flags `embed:""`
}

func (c *installCmd) Run(ctx context.Context, a *cli.App) error {
	return c.carryOut(ctx, a, Host.installation, "installed and running already")
}

type uninstallCmd struct {
	flags `embed:""`
}

func (c *uninstallCmd) Run(ctx context.Context, a *cli.App) error {
	return c.carryOut(ctx, a, func(h Host) ([]step, error) {
		steps, err := h.removal()
		for _, what := range h.kept() {
			steps = append(steps, step{say: "kept: " + what, done: func(changed bool) bool { return !changed }})
		}
		return steps, err
	}, "not installed")
}

type startCmd struct {
	flags `embed:""`
}

func (c *startCmd) Run(ctx context.Context, a *cli.App) error {
	return c.control(ctx, a, "start")
}

type stopCmd struct {
	flags `embed:""`
}

func (c *stopCmd) Run(ctx context.Context, a *cli.App) error { return c.control(ctx, a, "stop") }

type restartCmd struct {
	flags `embed:""`
}

func (c *restartCmd) Run(ctx context.Context, a *cli.App) error {
	return c.control(ctx, a, "restart")
}

func (f *flags) control(ctx context.Context, a *cli.App, verb string) error {
	return f.carryOut(ctx, a, func(h Host) ([]step, error) { return h.control(verb) }, "nothing to do")
}

// carryOut takes the remaining steps, or only prints them.
func (f *flags) carryOut(ctx context.Context, a *cli.App, plan func(Host) ([]step, error), nothing string) error {
	host, err := NewHost(a, f.User)
	if err != nil {
		return err
	}
	if err := host.rights(); err != nil && !f.DryRun {
		return err
	}
	steps, err := plan(host)
	if err != nil {
		return err
	}
	taken := []string{}
	for _, s := range steps {
		if s.done != nil && s.done(len(taken) > 0) {
			continue
		}
		if !f.DryRun && s.do != nil {
			err := s.do(ctx)
			if errors.Is(err, errSkipped) {
				term.Printf(a.Stderr, "%s %s: %v\n", a.Err.Yellow("not done:"), s.say, err)
				continue
			}
			if err != nil {
				return fmt.Errorf("%s: %w", s.say, err)
			}
		}
		taken = append(taken, s.say)
		if !a.JSON {
			f.sayStep(a, s)
		}
	}
	switch {
	case a.JSON:
		return a.WriteJSON(struct {
			DryRun bool     `json:"dry_run"`
			Steps  []string `json:"steps"`
		}{f.DryRun, taken})
	case len(taken) == 0:
		term.Println(a.Stdout, nothing)
	}
	return nil
}

func (f *flags) sayStep(a *cli.App, s step) {
	switch {
	case s.do == nil:
		term.Println(a.Stdout, s.say)
	case f.DryRun:
		term.Printf(a.Stdout, "%s %s\n", a.Out.Dim("would"), s.say)
	default:
		term.Printf(a.Stdout, "%s %s\n", a.Out.Green("done"), s.say)
	}
}

type statusCmd struct {
	User bool `help:"Your own service instead of the system's."`
}

func (c *statusCmd) Run(ctx context.Context, a *cli.App) error {
	host, err := NewHost(a, c.User)
	if err != nil {
		return err
	}
	s, err := host.Status(ctx)
	if err != nil {
		return err
	}
	if a.JSON {
		if err := a.WriteJSON(s); err != nil {
			return err
		}
	} else {
		serviceText(a, s)
	}
	switch {
	case !s.Installed:
		return &cli.ExitError{Code: cli.ExitNotFound}
	case !s.Running:
		return &cli.ExitError{Code: cli.ExitFailed}
	}
	return nil
}

func serviceText(a *cli.App, s *Status) {
	if !s.Installed {
		term.Printf(a.Stdout, "%s: run `ckptsidecar service install`\n", a.Out.Yellow("not installed"))
		return
	}
	state := a.Out.Green(s.State)
	if !s.Running {
		state = a.Out.Red(s.State)
	}
	p := term.Pairs{{"service", state + " (" + s.Scope + ", " + s.Manager + ")"}}
	for _, row := range [][2]string{{"since", s.Since}, {"says", s.Status}, {"socket", s.Socket}, {"last end", s.Result}, {"files", s.Files}} {
		if row[1] != "" {
			p.Add(row[0], row[1])
		}
	}
	if s.PID != 0 {
		p.Add("pid", fmt.Sprint(s.PID))
	}
	if s.Restarts > 0 {
		p.Add("restarts", fmt.Sprintf("%d by the manager since it was started", s.Restarts))
	}
	starts := "by hand only"
	if s.Enabled {
		starts = "by itself"
	}
	p.Add("starts", starts)
	p.Add("log", s.Log)
	p.Write(a.Stdout, a.Out)
}
