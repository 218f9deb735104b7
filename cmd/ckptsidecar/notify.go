package main

import (
	"context"
	"strings"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/cli/term"
)

type notifyCmd struct {
	Status notifyStatusCmd `cmd:"" default:"withargs" help:"Show the hooks and the state of their notices."`
	Test   notifyTestCmd   `cmd:"" help:"Send a test notice to every hook."`
}

type notifyTestCmd struct{}

func (c *notifyTestCmd) Run(ctx context.Context, a *app) error {
	tested, err := a.Client().NotifyTest(ctx)
	switch {
	case err != nil:
		return err
	case a.JSON:
		return a.WriteJSON(tested)
	case len(tested.Hooks) == 0:
		return ckpt.Errorf(ckpt.CodeNotFound, "the daemon's settings have no hook: see [notify] in docs/OPERATIONS.md")
	}
	term.Println(a.Stdout, tested.ID)
	a.Tell("sent to %s; see the result with: ckptsidecar notify", strings.Join(tested.Hooks, ", "))
	return nil
}

type notifyStatusCmd struct{}

func (c *notifyStatusCmd) Run(ctx context.Context, a *app) error {
	st, err := a.Client().Status(ctx)
	switch {
	case err != nil:
		return err
	case a.JSON:
		return a.WriteJSON(st.Notify)
	case len(st.Notify.Hooks) == 0:
		a.Tell("no hook is listed; only administrators can list hooks")
		return nil
	}
	for _, h := range st.Notify.Hooks {
		term.Printf(a.Stdout, "%s  %s  %d delivered, %d waiting, %d given up\n", a.Out.Bold(h.Name), h.Kind, h.Delivered, h.Pending, h.Dead)
		if h.LastError != "" {
			term.Printf(a.Stdout, "  the last error: %s\n", string(h.LastError))
		}
	}
	if st.Notify.Dropped > 0 {
		term.Printf(a.Stdout, "%d notices were dropped, because too many were waiting\n", st.Notify.Dropped)
	}
	return nil
}
