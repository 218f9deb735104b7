package systems

import (
	"context"
	"errors"
	"os"
	"time"

	"github.com/ckptsidecar/ckptsidecar/bench/internal/host"
	"github.com/ckptsidecar/ckptsidecar/bench/internal/load"
)

// Instance is a running system, in a separate folder.
type Instance struct {
	Version string
	Saves   int // acknowledged saves

	driver *driver
	server *server  // nil for a library inside its driver
	dir    string   // the folder of its data
	reused []string // files that do not grow with the kept states: logs that are written again and again
	empty  int64    // bytes that existed before the first save
}

// server is a process that keeps the data, and the signal that asks it to end.
type server struct {
	*host.Process
	signal os.Signal // nil to close its input instead
}

// stopPatience is how long a system can take to end by itself.
const stopPatience = 15 * time.Second

// Run carries out one order.
func (i *Instance) Run(ctx context.Context, o load.Order) (*load.Answer, error) {
	a, err := i.driver.run(ctx, o)
	if err == nil {
		i.Saves += a.Saves
	}
	return a, err
}

// CPU returns the processor time that the system and its driver have used so far.
func (i *Instance) CPU() (sum time.Duration, err error) {
	err = i.each(func(p *host.Process) error {
		one, err := p.CPU()
		sum += one
		return err
	})
	return sum, err
}

// Pause stops all processes of the system, so that they use no processor time while others are
// measured.
func (i *Instance) Pause() error { return i.each((*host.Process).Pause) }

// Resume lets the processes continue.
func (i *Instance) Resume() error { return i.each((*host.Process).Resume) }

func (i *Instance) each(do func(*host.Process) error) error {
	var errs []error
	if i.server != nil {
		errs = append(errs, do(i.server.Process))
	}
	if i.driver != nil {
		errs = append(errs, do(i.driver.process))
	}
	return errors.Join(errs...)
}

// Keepers returns the processes that write the data.
func (i *Instance) Keepers() ([]int, error) {
	if i.server != nil {
		return i.server.Tree()
	}
	return i.driver.process.Tree()
}

// Stop ends the system cleanly, so that all data is in its final place.
func (i *Instance) Stop() error {
	_ = i.Resume()
	var errs []error
	if i.driver != nil {
		errs = append(errs, i.driver.process.Stop(nil, stopPatience))
	}
	if i.server != nil {
		errs = append(errs, i.server.Stop(i.server.signal, stopPatience))
	}
	return errors.Join(errs...)
}

// Stored returns how many bytes of disk the data takes. Call it after Stop.
func (i *Instance) Stored() (int64, error) {
	use, err := host.DiskUse(i.dir, i.reused...)
	return use - i.empty, err
}
