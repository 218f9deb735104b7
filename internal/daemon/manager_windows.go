package daemon

import (
	"context"
	"errors"
	"os"
	"time"

	"golang.org/x/sys/windows/svc"
)

// ServiceName is the service's name on Windows.
const ServiceName = "ckptsidecar"

// Service is a daemon for the service control manager. Run serves until ctx ends, reports its
// status to m, and reloads its settings when asked.
type Service struct {
	Run func(ctx context.Context, m Manager, reload <-chan struct{}, hurry <-chan struct{}) error
}

// Serve runs the service under the service control manager, which must have started this process.
// Serve does not check that, because the available checks are wrong if a service runs outside of
// session 0.
func (s *Service) Serve() error { return svc.Run(ServiceName, s) }

// scm is the Manager for the service control manager. The loop of Execute passes its states on.
type scm struct{ states chan svc.Status }

const accepted = svc.AcceptStop | svc.AcceptShutdown | svc.AcceptParamChange

func (m *scm) Starting(more time.Duration) {
	m.states <- svc.Status{State: svc.StartPending, WaitHint: milliseconds(more)}
}

func (m *scm) Ready() { m.states <- svc.Status{State: svc.Running, Accepts: accepted} }

func (m *scm) Stopping(within time.Duration) {
	m.states <- svc.Status{State: svc.StopPending, WaitHint: milliseconds(within)}
}

func (m *scm) Reloading()                     {}
func (m *scm) Status(string)                  {}
func (m *scm) Alive()                         {}
func (m *scm) WatchdogTimeout() time.Duration { return 0 }

func milliseconds(d time.Duration) uint32 { return uint32(d.Milliseconds()) }

// Execute is called by the service control manager. A daemon that ends because of a fault exits
// without a report. The manager treats that as a crash and runs its recovery actions. A daemon that
// ends because somebody must fix something reports that, and is not restarted.
func (s *Service) Execute(_ []string, requests <-chan svc.ChangeRequest, changes chan<- svc.Status) (specific bool, code uint32) {
	e := &execution{states: make(chan svc.Status, 4), ended: make(chan error, 1), reload: make(chan struct{}, 1), hurry: make(chan struct{})}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	e.stop = stop
	changes <- svc.Status{State: svc.StartPending, WaitHint: milliseconds(moreTime)}
	go func() { e.ended <- s.Run(ctx, &scm{e.states}, e.reload, e.hurry) }()
	err := e.loop(requests, changes)
	var end *EndError
	switch {
	case err == nil:
		return false, 0
	case !errors.As(err, &end):
		return true, 1
	case end.ExitCode == ExitFault:
		os.Exit(ExitFault)
	}
	return true, uint32(end.ExitCode)
}

// execution is one run of the service.
type execution struct {
	states chan svc.Status
	ended  chan error
	reload chan struct{}
	hurry  chan struct{}
	stop   context.CancelFunc
	now    svc.Status
}

// loop passes messages between the manager and the daemon until the daemon has ended.
func (e *execution) loop(requests <-chan svc.ChangeRequest, changes chan<- svc.Status) error {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case err := <-e.ended:
			return err
		case e.now = <-e.states:
			changes <- e.now
		case <-tick.C: // a pending state must show progress
			if e.now.State == svc.StopPending {
				e.now.CheckPoint++
				changes <- e.now
			}
		case request := <-requests:
			e.answer(request, changes)
		}
	}
}

func (e *execution) answer(request svc.ChangeRequest, changes chan<- svc.Status) {
	switch request.Cmd {
	case svc.Interrogate:
		changes <- request.CurrentStatus
	case svc.Stop, svc.Shutdown:
		e.now = svc.Status{State: svc.StopPending, WaitHint: milliseconds(10 * time.Second)}
		changes <- e.now
		e.stop()
	case svc.ParamChange:
		select {
		case e.reload <- struct{}{}:
		default: // a reload is waiting already
		}
	}
}
