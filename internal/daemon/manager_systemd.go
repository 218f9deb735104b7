package daemon

import (
	"fmt"
	"time"

	sd "github.com/coreos/go-systemd/v22/daemon"
)

// systemd is the manager that listens at the socket in NOTIFY_SOCKET. It is no error if no
// program listens there anymore.
type systemd struct{ timeout time.Duration }

// Systemd returns the manager that the environment describes. It is nil if systemd did not start
// this process or does not want its status.
func Systemd(env Environment) (Manager, error) {
	if env("NOTIFY_SOCKET") == "" {
		return nil, nil
	}
	timeout, err := sd.SdWatchdogEnabled(false)
	if err != nil {
		return nil, fmt.Errorf("the watchdog settings of systemd cannot be read: %w", err)
	}
	return systemd{timeout}, nil
}

func tell(state string) { _, _ = sd.SdNotify(false, state) }

func (systemd) Starting(more time.Duration) {
	tell(fmt.Sprintf("EXTEND_TIMEOUT_USEC=%d\nSTATUS=Starting: the database is being checked", more.Microseconds()))
}

func (systemd) Ready() { tell(sd.SdNotifyReady) }

func (systemd) Reloading() {
	tell(fmt.Sprintf("%s\nMONOTONIC_USEC=%d", sd.SdNotifyReloading, monotonic().Microseconds()))
}

func (systemd) Stopping(within time.Duration) {
	tell(fmt.Sprintf("%s\nEXTEND_TIMEOUT_USEC=%d\nSTATUS=Stopping: requests in flight are answered", sd.SdNotifyStopping, within.Microseconds()))
}

func (systemd) Status(text string)               { tell("STATUS=" + text) }
func (systemd) Alive()                           { tell(sd.SdNotifyWatchdog) }
func (s systemd) WatchdogTimeout() time.Duration { return s.timeout }
