package service

import (
	"context"
	"errors"
	"fmt"
	"time"
	"unsafe"

	"github.com/kardianos/service"
	"golang.org/x/sys/windows"
	"golang.org/x/sys/windows/svc"
	"golang.org/x/sys/windows/svc/mgr"

	"github.com/ckptsidecar/ckptsidecar/internal/daemon"
)

// scmHost is the service control manager. The service runs as LocalSystem, because the
// daemon must read the identity of its clients from the tokens of their processes, and
// lesser accounts may not do that. It keeps one privilege.
type scmHost struct {
	data    string // the folder of the database and the settings
	program string
	service service.Service
}

// What the manager does when the daemon ends without reporting that it stopped: it
// restarts the daemon, with growing pauses. A day without a fault resets the count.
var (
	recoveries = []mgr.RecoveryAction{{Type: mgr.ServiceRestart, Delay: 2 * time.Second},
		{Type: mgr.ServiceRestart, Delay: 15 * time.Second}, {Type: mgr.ServiceRestart, Delay: 2 * time.Minute}}
	forgiveness = uint32(24 * 60 * 60)
)

// privileges are the only privileges of LocalSystem that the service keeps: to pass
// through folders on the way to its own.
var privileges = []string{"SeChangeNotifyPrivilege"}

func does(f func() error) func(context.Context) error {
	return func(context.Context) error { return f() }
}

// with opens the service for reading.
func (h *scmHost) with(f func(*mgr.Service) error) error {
	return withService(windows.SC_MANAGER_CONNECT, windows.SERVICE_QUERY_CONFIG|windows.SERVICE_QUERY_STATUS, f)
}

// withService asks for no more rights than needed, because every user may look.
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

// state returns Stopped if the manager does not report a state.
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

func scmStateText(s svc.State) string {
	text := map[svc.State]string{
		svc.Stopped: "stopped", svc.StartPending: "starting", svc.StopPending: "stopping", svc.Running: "running", svc.Paused: "paused",
	}[s]
	if text == "" {
		return fmt.Sprintf("state %d", s)
	}
	return text
}

// How long to wait for a start and for a stop. A start can migrate or check a large database. It may take as long as the
// daemon reports that it is starting.
const (
	startTimeout = 20 * time.Minute
	stopTimeout  = 40 * time.Second
)

func (h *scmHost) start(ctx context.Context) error {
	err := withService(windows.SC_MANAGER_CONNECT, windows.SERVICE_START|windows.SERVICE_QUERY_STATUS,
		func(s *mgr.Service) error { return s.Start() })
	if err != nil && !errors.Is(err, windows.ERROR_SERVICE_ALREADY_RUNNING) {
		return err
	}
	return h.until(ctx, svc.Running, startTimeout)
}

func (h *scmHost) stop(ctx context.Context) error {
	err := withService(windows.SC_MANAGER_CONNECT, windows.SERVICE_STOP|windows.SERVICE_QUERY_STATUS, func(s *mgr.Service) error {
		_, err := s.Control(svc.Stop)
		return err
	})
	if err != nil && !errors.Is(err, windows.ERROR_SERVICE_NOT_ACTIVE) {
		return err
	}
	return h.until(ctx, svc.Stopped, stopTimeout)
}

// until waits for a state. It does not wait for a service that stops instead of starting.
func (h *scmHost) until(ctx context.Context, want svc.State, most time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, most)
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
			return fmt.Errorf("after %v it is still %s", most, scmStateText(state))
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// binaryPath returns what the manager would start.
func (h *scmHost) binaryPath() (path string, automatic bool, err error) {
	err = h.with(func(s *mgr.Service) error {
		var needed uint32
		_ = windows.QueryServiceConfig(s.Handle, nil, 0, &needed) // returns how much memory is needed
		room := make([]byte, max(needed, 8192))
		config := (*windows.QUERY_SERVICE_CONFIG)(unsafe.Pointer(&room[0]))
		if err := windows.QueryServiceConfig(s.Handle, config, uint32(len(room)), &needed); err != nil {
			return err
		}
		path, automatic = windows.UTF16PtrToString(config.BinaryPathName), config.StartType == mgr.StartAutomatic
		return nil
	})
	return path, automatic, err
}

// commandLine returns what the manager must start.
func (h *scmHost) commandLine() string {
	return windows.ComposeCommandLine([]string{h.program, "serve", "--system", "--as-service"})
}

// startThis makes the manager start this program at boot.
func (h *scmHost) startThis() error {
	return configuring(func(s *mgr.Service) error {
		path, err := windows.UTF16PtrFromString(h.commandLine())
		if err != nil {
			return err
		}
		return windows.ChangeServiceConfig(s.Handle, windows.SERVICE_WIN32_OWN_PROCESS, windows.SERVICE_AUTO_START,
			windows.SERVICE_ERROR_NORMAL, path, nil, nil, nil, nil, nil, nil)
	})
}

func recoverLater() error {
	return configuring(func(s *mgr.Service) error { return s.SetRecoveryActions(recoveries, forgiveness) })
}

// keepPrivileges removes all other privileges of the account from the service.
func keepPrivileges() error {
	return configuring(func(s *mgr.Service) error {
		var list []uint16
		for _, name := range privileges {
			text, err := windows.UTF16FromString(name)
			if err != nil {
				return err
			}
			list = append(list, text...)
		}
		list = append(list, 0)
		info := struct{ privileges *uint16 }{&list[0]}
		return windows.ChangeServiceConfig2(s.Handle, windows.SERVICE_CONFIG_REQUIRED_PRIVILEGES_INFO, (*byte)(unsafe.Pointer(&info)))
	})
}

// configuring opens the service for changes.
func configuring(f func(*mgr.Service) error) error {
	err := withService(windows.SC_MANAGER_CONNECT, windows.SERVICE_ALL_ACCESS, f)
	if errors.Is(err, windows.ERROR_INVALID_LEVEL) {
		return fmt.Errorf("%w: this service manager does not know it (Wine's does not)", errSkipped)
	}
	return err
}
