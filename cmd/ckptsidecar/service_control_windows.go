package main

import (
	"context"
	"errors"
	"fmt"
	"time"
	"unsafe"

	"golang.org/x/sys/windows"
	"golang.org/x/sys/windows/svc"
	"golang.org/x/sys/windows/svc/mgr"

	"github.com/ckptsidecar/ckptsidecar/internal/daemon"
)

func does(f func() error) func(context.Context) error {
	return func(context.Context) error { return f() }
}

// with opens the service to look at it.
func (h *scmHost) with(f func(*mgr.Service) error) error {
	return withService(windows.SC_MANAGER_CONNECT, windows.SERVICE_QUERY_CONFIG|windows.SERVICE_QUERY_STATUS, f)
}

// withService asks for no more rights than are needed, because anybody may look.
func withService(manager, rights uint32, f func(*mgr.Service) error) error {
	m, err := windows.OpenSCManager(nil, nil, manager)
	if err != nil {
		return fmt.Errorf("the service control manager cannot be reached: %w", err)
	}
	defer func() { _ = windows.CloseServiceHandle(m) }()
	name, err := windows.UTF16PtrFromString(daemon.ServiceName)
	if err != nil {
		return err
	}
	handle, err := windows.OpenService(m, name, rights)
	if err != nil {
		return err
	}
	s := &mgr.Service{Name: daemon.ServiceName, Handle: handle}
	return errors.Join(f(s), s.Close())
}

func (h *scmHost) there() bool {
	return !errors.Is(h.with(func(*mgr.Service) error { return nil }), windows.ERROR_SERVICE_DOES_NOT_EXIST)
}

// state is Stopped where the manager does not say.
func (h *scmHost) state() svc.State {
	state := svc.Stopped
	_ = h.with(func(s *mgr.Service) error {
		now, err := s.Query()
		if err == nil {
			state = now.State
		}
		return err
	})
	return state
}

// patience is how long a start and a stop are waited for.
const patience = 40 * time.Second

func (h *scmHost) start(ctx context.Context) error {
	err := withService(windows.SC_MANAGER_CONNECT, windows.SERVICE_START|windows.SERVICE_QUERY_STATUS, func(s *mgr.Service) error { return s.Start() })
	if err != nil && !errors.Is(err, windows.ERROR_SERVICE_ALREADY_RUNNING) {
		return err
	}
	return h.until(ctx, svc.Running)
}

func (h *scmHost) stop(ctx context.Context) error {
	err := withService(windows.SC_MANAGER_CONNECT, windows.SERVICE_STOP|windows.SERVICE_QUERY_STATUS, func(s *mgr.Service) error {
		_, err := s.Control(svc.Stop)
		return err
	})
	if err != nil && !errors.Is(err, windows.ERROR_SERVICE_NOT_ACTIVE) {
		return err
	}
	return h.until(ctx, svc.Stopped)
}

// until waits for a state. A service that stops instead of starting is not
// waited for.
func (h *scmHost) until(ctx context.Context, want svc.State) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		state := h.state()
		switch {
		case state == want:
			return nil
		case state == svc.Stopped:
			return errors.New("it ended at once: the event log says why (Get-WinEvent -ProviderName ckptsidecar)")
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("after %v it is still %s", patience, scmStateText(state))
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// configure says to the manager what registering alone does not.
func (h *scmHost) configure() error {
	return withService(windows.SC_MANAGER_CONNECT, windows.SERVICE_ALL_ACCESS, func(s *mgr.Service) error {
		config, err := s.Config()
		if err != nil {
			return err
		}
		config.BinaryPathName = windows.ComposeCommandLine([]string{h.program, "serve", "--system", "--as-service"})
		config.StartType, config.DelayedAutoStart, config.SidType = mgr.StartAutomatic, true, windows.SERVICE_SID_TYPE_UNRESTRICTED
		if err := s.UpdateConfig(config); err != nil {
			return err
		}
		if err := s.SetRecoveryActions(recoveries, forgiveness); err != nil {
			return err
		}
		return keepPrivileges(s, privileges)
	})
}

// keepPrivileges takes all other privileges from the account in this service.
func keepPrivileges(s *mgr.Service, names []string) error {
	var list []uint16
	for _, name := range names {
		text, err := windows.UTF16FromString(name)
		if err != nil {
			return err
		}
		list = append(list, text...)
	}
	list = append(list, 0)
	info := struct{ privileges *uint16 }{&list[0]}
	return windows.ChangeServiceConfig2(s.Handle, windows.SERVICE_CONFIG_REQUIRED_PRIVILEGES_INFO, (*byte)(unsafe.Pointer(&info)))
}
