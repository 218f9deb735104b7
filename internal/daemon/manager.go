package daemon

import "time"

// Manager is the program that started the daemon and wants its status: systemd, or the service
// control manager of Windows. Its methods must not block.
type Manager interface {
	// Starting says that the start goes on, and to wait so much longer for it.
	Starting(more time.Duration)
	// Ready says that saves are acknowledged, after a start or a reload.
	Ready()
	// Reloading says that the settings are being read anew; Ready follows.
	Reloading()
	// Stopping says that the end has begun and takes no longer than that.
	Stopping(within time.Duration)
	// Status is a line for people.
	Status(text string)
	// Alive says that the daemon does its work. A manager whose WatchdogTimeout is not
	// 0 ends a daemon that has not said so for that long.
	Alive()
	WatchdogTimeout() time.Duration
}

// nobody started the daemon but a person.
type nobody struct{}

func (nobody) Starting(time.Duration)         {}
func (nobody) Ready()                         {}
func (nobody) Reloading()                     {}
func (nobody) Stopping(time.Duration)         {}
func (nobody) Status(string)                  {}
func (nobody) Alive()                         {}
func (nobody) WatchdogTimeout() time.Duration { return 0 }

// moreTime is what a long start asks for at a time, and mostTime when it asks
// no more: then the manager may end it.
const (
	moreTime = 30 * time.Second
	mostTime = 20 * time.Minute
)

// startPatiently tells the manager, for as long as the start goes on, that it
// does. A check of a big database after a fault takes minutes.
func startPatiently(m Manager) (started func()) {
	done := make(chan struct{})
	go func() {
		tick := time.NewTicker(moreTime / 3)
		defer tick.Stop()
		for range int(mostTime / (moreTime / 3)) {
			select {
			case <-done:
				return
			case <-tick.C:
				m.Starting(moreTime)
			}
		}
	}()
	return func() { close(done) }
}
