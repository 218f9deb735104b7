package systems

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/ckptsidecar/ckptsidecar/bench/internal/host"
	"github.com/ckptsidecar/ckptsidecar/bench/internal/load"
)

// driver is a process that makes the work for one system.
type driver struct {
	process *host.Process
	answers chan load.Answer
	failed  chan error
	version string
}

const (
	patience      = 60 * time.Second       // how long a driver can take beyond the time of its order
	limitPatience = 200 * time.Millisecond // for each save of an order that has no time
)

// drive starts this program as the driver of a system.
func (w *Workshop) drive(ctx context.Context, name, address string) (*driver, error) {
	return startDriver(ctx, host.Spec{Name: "the driver of " + name, Path: w.Self, Args: []string{"drive", name, address, w.Corpus}})
}

func startDriver(ctx context.Context, spec host.Spec) (*driver, error) {
	spec.Pipe = true
	p, err := host.Start(spec)
	if err != nil {
		return nil, err
	}
	d := &driver{process: p, answers: make(chan load.Answer), failed: make(chan error, 1)}
	go d.read()
	ready, err := d.next(ctx, patience)
	if err == nil && !ready.Ready {
		err = errors.New(spec.Name + " spoke before it was ready")
	}
	if err != nil {
		p.Kill()
		return nil, err
	}
	d.version = ready.Version
	return d, nil
}

func (d *driver) read() {
	lines := bufio.NewReaderSize(d.process.Out, 1<<20)
	for {
		line, err := lines.ReadBytes('\n')
		var a load.Answer
		if err == nil {
			err = json.Unmarshal(line, &a)
		}
		if err != nil {
			if errors.Is(err, io.EOF) {
				<-d.process.Ended()
				err = d.process.Failure()
			}
			d.failed <- err
			return
		}
		d.answers <- a
	}
}

func (d *driver) next(ctx context.Context, patience time.Duration) (*load.Answer, error) {
	late := time.NewTimer(patience)
	defer late.Stop()
	select {
	case a := <-d.answers:
		if a.Error != "" {
			return nil, errors.New(a.Error)
		}
		return &a, nil
	case err := <-d.failed:
		d.failed <- err
		return nil, err
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-late.C:
		return nil, fmt.Errorf("no answer in %s: %w", patience, d.process.Failure())
	}
}

// run lets the driver carry out an order.
func (d *driver) run(ctx context.Context, o load.Order) (*load.Answer, error) {
	line, err := json.Marshal(o)
	if err != nil {
		return nil, err
	}
	if _, err := d.process.In.Write(append(line, '\n')); err != nil {
		return nil, fmt.Errorf("%w (%v)", d.process.Failure(), err)
	}
	turn := time.Duration((o.Warm+o.Seconds)*float64(time.Second)) + time.Duration(o.Limit)*limitPatience
	return d.next(ctx, patience+turn)
}
