package service

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/kardianos/service"
	"golang.org/x/sys/windows"
	"golang.org/x/sys/windows/svc"
	"golang.org/x/sys/windows/svc/mgr"

	"github.com/ckptsidecar/ckptsidecar/internal/cli"
	"github.com/ckptsidecar/ckptsidecar/internal/daemon"
)

func NewHost(a *cli.App, user bool) (Host, error) {
	if user {
		return nil, errors.New("Windows has no services of one user: have `ckptsidecar serve` started when you log on, by " +
			"the task scheduler") //nolint:staticcheck // a name begins it
	}
	program, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("the path of this program is unknown: %w", err)
	}
	config := daemon.Default(true, a.Env)
	h := &scmHost{data: filepath.Dir(config.Database), program: program}
	h.service, err = service.New(unrun{}, &service.Config{
		Name: daemon.ServiceName, DisplayName: "ckptsidecar (checkpoints of AI agents)",
		Description: "Takes checkpoints of AI agents and acknowledges them when they are safe on disk.",
		Executable:  program, Arguments: []string{"serve", "--system", "--as-service"},
	})
	return h, err
}

// unrun is for a library that could also run the service; serve does that.
type unrun struct{}

func (unrun) Start(service.Service) error { return errors.ErrUnsupported }
func (unrun) Stop(service.Service) error  { return errors.ErrUnsupported }

func (h *scmHost) rights() error {
	m, err := windows.OpenSCManager(nil, nil, windows.SC_MANAGER_CREATE_SERVICE)
	if errors.Is(err, windows.ERROR_ACCESS_DENIED) {
		return errors.New("only an administrator may change the service: use an elevated prompt (Run as administrator)")
	}
	if err != nil {
		return fmt.Errorf("the service control manager cannot be reached: %w", err)
	}
	return windows.CloseServiceHandle(m)
}

func (h *scmHost) installation() ([]step, error) {
	return []step{
		{
			say:  "register the service " + daemon.ServiceName + " for " + h.program + ", and the source of its events",
			done: func(bool) bool { return h.there() },
			do:   does(h.service.Install),
		},
		{say: "have it start " + h.program + " at boot", done: func(changed bool) bool { return !changed && h.isAsShipped() }, do: does(h.startThis)},
		{say: "have it started again after a fault: after 2 s, 15 s, then 2 min each", done: unchanged, do: does(recoverLater)},
		{say: "take all privileges from it but " + strings.Join(privileges, ", "), done: unchanged, do: does(keepPrivileges)},
		{
			say:  "stop the service, which still runs as it was before",
			done: func(changed bool) bool { return !changed || h.state() == svc.Stopped },
			do:   h.stop,
		},
		{ // after the stop: a change to the folder needs no restart
			say:  "make " + h.data + ", which only LocalSystem and Administrators reach",
			done: func(bool) bool { return daemon.IsProtected(h.data) },
			do:   does(func() error { return daemon.ProtectFolder(h.data) }),
		},
		{say: "start the service", done: func(bool) bool { return h.state() != svc.Stopped }, do: h.start},
	}, nil
}

func unchanged(changed bool) bool { return !changed }

func (h *scmHost) removal() ([]step, error) {
	return []step{
		{say: "stop the service", done: func(bool) bool { return !h.there() || h.state() == svc.Stopped }, do: h.stop},
		{say: "remove the service and the source of its events", done: func(bool) bool { return !h.there() }, do: does(h.service.Uninstall)},
	}, nil
}

func (h *scmHost) kept() []string { return []string{h.data + ", the checkpoints and the settings"} }

func (h *scmHost) control(verb string) ([]step, error) {
	if !h.there() {
		return nil, &cli.ExitError{Code: cli.ExitNotFound, Message: errNotInstalled.Error()}
	}
	var steps []step
	if verb != "start" {
		steps = append(steps, step{say: "stop the service", done: func(bool) bool { return h.state() == svc.Stopped }, do: h.stop})
	}
	if verb != "stop" {
		steps = append(steps, step{say: "start the service", done: func(bool) bool { return h.state() == svc.Running }, do: h.start})
	}
	return steps, nil
}

func (h *scmHost) Status(context.Context) (*Status, error) {
	s := &Status{
		Installed: h.there(), Scope: "system", Manager: "Windows", Socket: daemon.Default(true, os.Getenv).Socket,
		Log: "Get-WinEvent -ProviderName " + daemon.EventSource,
	}
	if !s.Installed {
		return s, nil
	}
	err := h.with(func(service *mgr.Service) error {
		now, err := service.Query()
		if err != nil {
			return err
		}
		s.State, s.Running, s.PID = scmStateText(now.State), now.State == svc.Running, int(now.ProcessId)
		if now.State == svc.Stopped && now.ServiceSpecificExitCode != 0 {
			s.Result = fmt.Sprintf("exit code %d", now.ServiceSpecificExitCode)
		}
		s.Files, s.Enabled, err = h.binaryPath()
		return err
	})
	return s, err
}

// isAsShipped reports whether the manager would start this program as it should.
func (h *scmHost) isAsShipped() bool {
	path, automatic, err := h.binaryPath()
	return err == nil && automatic && path == h.commandLine()
}
