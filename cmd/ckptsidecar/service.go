package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/ckptsidecar/ckptsidecar/internal/cli"
	"github.com/ckptsidecar/ckptsidecar/internal/cli/term"
)

type serviceCmd struct {
	Install   serviceInstallCmd   `cmd:"" help:"Install the daemon as a service, have it started at boot, and start it. What is there already is left as it is, or brought up to date."`
	Uninstall serviceUninstallCmd `cmd:"" help:"Stop the service and take it away. Checkpoints and settings stay."`
	Start     serviceStartCmd     `cmd:"" help:"Start the service."`
	Stop      serviceStopCmd      `cmd:"" help:"Stop the service. Agents that call it then find nobody."`
	Restart   serviceRestartCmd   `cmd:"" help:"Restart the service."`
	Status    serviceStatusCmd    `cmd:"" help:"Say how the service is doing. The exit code is 0 where it runs, 1 where it does not, 3 where it is not installed."`
}

// serviceFlags say which service is meant.
type serviceFlags struct {
	User   bool `help:"Your own service instead of the system's."`
	DryRun bool `help:"Only say what would be done."`
}

// errNotInstalled is for what needs a service that is there.
var errNotInstalled = errors.New("the service is not installed: `ckptsidecar service install` does it")

// errSkipped is the error of a step that cannot be taken here, and without
// which the service runs all the same.
var errSkipped = errors.New("skipped")

// serviceHost is the service manager of this machine.
type serviceHost interface {
	// rights answers why this user may not change the service, in one line.
	rights() error
	installation() ([]serviceStep, error)
	removal() ([]serviceStep, error)
	control(verb string) ([]serviceStep, error)
	status(context.Context) (*serviceShape, error)
	// kept are what an uninstalled service leaves, and why.
	kept() []string
}

// serviceStep is one thing to do. It says itself what it does, for whoever
// watches and for --dry-run.
type serviceStep struct {
	say  string
	done func(changed bool) bool     // nothing to do; changed is whether a step before did something
	do   func(context.Context) error // nil where it is only to be said
}

// serviceShape is how a service is doing.
type serviceShape struct {
	Installed bool   `json:"installed"`
	Scope     string `json:"scope"` // system or user
	Manager   string `json:"manager"`
	State     string `json:"state"` // active, inactive, failed, …
	Running   bool   `json:"running"`
	Enabled   bool   `json:"enabled"` // starts by itself
	PID       int    `json:"pid,omitempty"`
	Since     string `json:"since,omitempty"`
	Socket    string `json:"socket,omitempty"`
	Restarts  int    `json:"restarts"`
	Result    string `json:"result,omitempty"` // of the last run
	Status    string `json:"status,omitempty"` // what the daemon said last
	Files     string `json:"files,omitempty"`  // as shipped, changed, or from the package
	Log       string `json:"log"`              // the command that shows it
}

type serviceInstallCmd struct {
	serviceFlags `embed:""`
}

func (c *serviceInstallCmd) Run(ctx context.Context, a *app) error {
	return c.carryOut(ctx, a, serviceHost.installation, "installed and running already")
}

type serviceUninstallCmd struct {
	serviceFlags `embed:""`
}

func (c *serviceUninstallCmd) Run(ctx context.Context, a *app) error {
	return c.carryOut(ctx, a, func(h serviceHost) ([]serviceStep, error) {
		steps, err := h.removal()
		for _, what := range h.kept() {
			steps = append(steps, serviceStep{say: "kept: " + what, done: func(changed bool) bool { return !changed }})
		}
		return steps, err
	}, "not installed")
}

type serviceStartCmd struct {
	serviceFlags `embed:""`
}

func (c *serviceStartCmd) Run(ctx context.Context, a *app) error { return c.control(ctx, a, "start") }

type serviceStopCmd struct {
	serviceFlags `embed:""`
}

func (c *serviceStopCmd) Run(ctx context.Context, a *app) error { return c.control(ctx, a, "stop") }

type serviceRestartCmd struct {
	serviceFlags `embed:""`
}

func (c *serviceRestartCmd) Run(ctx context.Context, a *app) error {
	return c.control(ctx, a, "restart")
}

func (f *serviceFlags) control(ctx context.Context, a *app, verb string) error {
	return f.carryOut(ctx, a, func(h serviceHost) ([]serviceStep, error) { return h.control(verb) }, "nothing to do")
}

// carryOut takes the steps that are left to take, or says them.
func (f *serviceFlags) carryOut(ctx context.Context, a *app, plan func(serviceHost) ([]serviceStep, error), nothing string) error {
	host, err := newServiceHost(a, f.User)
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
		return term.WriteJSON(a.Data(), struct {
			DryRun bool     `json:"dry_run"`
			Steps  []string `json:"steps"`
		}{f.DryRun, taken})
	case len(taken) == 0:
		term.Println(a.Stdout, nothing)
	}
	return nil
}

func (f *serviceFlags) sayStep(a *app, s serviceStep) {
	switch {
	case s.do == nil:
		term.Println(a.Stdout, s.say)
	case f.DryRun:
		term.Printf(a.Stdout, "%s %s\n", a.Out.Dim("would"), s.say)
	default:
		term.Printf(a.Stdout, "%s %s\n", a.Out.Green("done"), s.say)
	}
}

type serviceStatusCmd struct {
	User bool `help:"Your own service instead of the system's."`
}

func (c *serviceStatusCmd) Run(ctx context.Context, a *app) error {
	host, err := newServiceHost(a, c.User)
	if err != nil {
		return err
	}
	s, err := host.status(ctx)
	if err != nil {
		return err
	}
	if a.JSON {
		if err := term.WriteJSON(a.Data(), s); err != nil {
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

func serviceText(a *app, s *serviceShape) {
	if !s.Installed {
		term.Printf(a.Stdout, "%s: `ckptsidecar service install` does it\n", a.Out.Yellow("not installed"))
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
