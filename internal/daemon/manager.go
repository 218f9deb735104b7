package daemon

import "time"

// Manager is the program that started the daemon and wants its status: systemd, or the service
// control manager of Windows. Its methods must not block.
type Manager interface {
	// Starting reports that the start is still in progress, and asks the manager to wait this
	// much longer.
	Starting(more time.Duration)
	// Ready reports that saves are acknowledged, after a start or a reload.
	Ready()
	// Reloading reports that the daemon reads its settings again. Ready follows.
	Reloading()
	// Stopping reports that the stop has begun and does not take longer than the given time.
	Stopping(within time.Duration)
	// Status sets a line of text for people.
	Status(text string)
	// Alive reports that the daemon does its work. If WatchdogTimeout is not 0, the manager
	// ends a daemon that has not called Alive for that long.
	Alive()
	WatchdogTimeout() time.Duration
}

// nobody is the manager of a daemon that a person started. It does nothing.
type nobody struct{}

func (nobody) Starting(time.Duration)         {}
func (nobody) Ready()                         {}
func (nobody) Reloading()                     {}
func (nobody) Stopping(time.Duration)         {}
func (nobody) Status(string)                  {}
func (nobody) Alive()                         {}
func (nobody) WatchdogTimeout() time.Duration { return 0 }

// moreTime is how much time a long start asks for at once. After mostTime it asks for no more,
// and the manager may end it.
const (
	moreTime = 30 * time.Second
	mostTime = 20 * time.Minute
)

// startPatiently tells the manager regularly that the start is still in progress. The check of
// a big database after a fault takes minutes.
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
