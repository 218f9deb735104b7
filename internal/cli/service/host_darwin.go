package service

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/kardianos/service"

	"github.com/ckptsidecar/ckptsidecar/internal/cli"
	"github.com/ckptsidecar/ckptsidecar/packaging"
)

// launchdHost is launchd. It is built and vetted at each change, but was never run,
// because the project has no Mac.
type launchdHost struct {
	user    bool
	plist   string
	service service.Service
}

func NewHost(a *cli.App, user bool) (Host, error) {
	h := &launchdHost{user: user, plist: "/Library/LaunchDaemons/ckptsidecar.plist"}
	arguments := []string{"serve", "--system"}
	if user {
		arguments = []string{"serve"}
		h.plist = filepath.Join(a.Env("HOME"), "Library/LaunchAgents/ckptsidecar.plist")
	}
	var err error
	h.service, err = service.New(unrun{}, &service.Config{
		Name: "ckptsidecar", DisplayName: "ckptsidecar", Description: "Checkpoints of AI agents", Arguments: arguments,
		Option: service.KeyValue{
			"UserService": user, "LaunchdConfig": packaging.File("launchd/ckptsidecar.plist.tmpl"),
		},
	})
	return h, err
}

// unrun is for a library that could also run the service; serve does that.
type unrun struct{}

func (unrun) Start(service.Service) error { return errors.ErrUnsupported }
func (unrun) Stop(service.Service) error  { return errors.ErrUnsupported }

func (h *launchdHost) rights() error {
	if !h.user && os.Geteuid() != 0 {
		return errors.New("only root may change the system's service: use sudo, or --user for your own service")
	}
	return nil
}

func (h *launchdHost) there() bool {
	_, err := os.Lstat(h.plist)
	return err == nil
}

func (h *launchdHost) runs() bool {
	status, err := h.service.Status()
	return err == nil && status == service.StatusRunning
}

func does(f func() error) func(context.Context) error {
	return func(context.Context) error { return f() }
}

func (h *launchdHost) installation() ([]step, error) {
	return []step{
		{say: "write " + h.plist, done: func(bool) bool { return h.there() }, do: does(h.service.Install)},
		{say: "launchctl load " + h.plist, done: func(bool) bool { return h.runs() }, do: does(h.service.Start)},
	}, nil
}

func (h *launchdHost) removal() ([]step, error) {
	return []step{
		{say: "unload and remove " + h.plist, done: func(bool) bool { return !h.there() }, do: does(h.service.Uninstall)},
	}, nil
}

func (h *launchdHost) kept() []string { return []string{"the checkpoints and the settings"} }

func (h *launchdHost) control(verb string) ([]step, error) {
	if !h.there() {
		return nil, &cli.ExitError{Code: cli.ExitNotFound, Message: errNotInstalled.Error()}
	}
	do := map[string]func() error{"start": h.service.Start, "stop": h.service.Stop, "restart": h.service.Restart}[verb]
	return []step{{say: verb + " ckptsidecar", do: does(do)}}, nil
}

func (h *launchdHost) Status(context.Context) (*Status, error) {
	s := &Status{
		Installed: h.there(), Scope: "system", Manager: "launchd", State: "not running",
		Running: h.runs(), Enabled: h.there(), Log: "tail /var/log/ckptsidecar.err.log",
	}
	if h.user {
		s.Scope, s.Log = "user", "tail ~/ckptsidecar.err.log"
	}
	if s.Running {
		s.State = "running"
	}
	if s.Installed {
		s.Files = fmt.Sprintf("in %s", h.plist)
	}
	return s, nil
}
