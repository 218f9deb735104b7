package main

import (
	"context"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/ckptsidecar/ckptsidecar/internal/cli/program"
	"github.com/ckptsidecar/ckptsidecar/internal/ipc"
)

// task is what a client does once, and how long it took: what is only needed
// for measuring, such as making a state, does not count.
type task func(context.Context) (time.Duration, error)

// load is clients that each do their task over and over, as fast as it is
// answered.
type load struct {
	clients int
	during  time.Duration
	most    int // tasks of one client; 0 for as many as there is time for
}

// run measures. Each client does its task once before that counts, so that
// connections, agents and caches are there.
func (l load) run(ctx context.Context, open func(n int) (task, error)) (figures, error) {
	tasks := make([]task, l.clients)
	err := l.each(ctx, func(ctx context.Context, n int) (err error) {
		if tasks[n], err = open(n); err == nil {
			_, err = tasks[n](ctx)
		}
		return err
	})
	if err != nil {
		return figures{}, err
	}
	var mu sync.Mutex
	var all []float64
	began := time.Now()
	err = l.each(ctx, func(ctx context.Context, n int) error {
		took, err := l.repeat(ctx, tasks[n], began.Add(l.during))
		mu.Lock()
		defer mu.Unlock()
		all = append(all, took...)
		return err
	})
	return figuresOf(all, time.Since(began)), err
}

// each does something for all clients at once; the first error ends it.
func (l load) each(ctx context.Context, do func(ctx context.Context, n int) error) error {
	group, ctx := errgroup.WithContext(ctx)
	for n := range l.clients {
		group.Go(func() error { return do(ctx, n) })
	}
	return group.Wait()
}

func (l load) repeat(ctx context.Context, t task, until time.Time) (took []float64, err error) {
	for {
		one, err := t(ctx)
		if err != nil {
			return took, err
		}
		took = append(took, inMillis(one))
		if len(took) == l.most || !time.Now().Before(until) {
			return took, ctx.Err()
		}
	}
}

// measuredDaemon is a daemon with a connection for each client, which last
// from one measurement to the next.
type measuredDaemon struct {
	*program.Daemon
	mu      sync.Mutex
	clients []*ipc.Client
}

// clientOf is the connection of client n.
func (d *measuredDaemon) clientOf(n int) *ipc.Client {
	d.mu.Lock()
	defer d.mu.Unlock()
	for len(d.clients) <= n {
		c := d.Client()
		c.Retry = 10 * time.Second // a client that is told to wait waits, and its time counts
		d.clients = append(d.clients, c)
	}
	return d.clients[n]
}

// hangUp closes all connections, before the daemon ends.
func (d *measuredDaemon) hangUp() {
	for _, c := range d.clients {
		c.Close()
	}
	d.clients = nil
}

// start starts a daemon with its database in a folder of that name.
func (b *bench) start(ctx context.Context, name string) (*measuredDaemon, error) {
	dir := filepath.Join(b.dir, name)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	own, err := b.a.startDaemon(ctx, dir)
	if err != nil {
		return nil, err
	}
	d := &measuredDaemon{Daemon: own}
	b.daemons = append(b.daemons, d)
	return d, nil
}

// end stops a daemon and removes its database.
func (b *bench) end(d *measuredDaemon) error {
	d.hangUp()
	err := d.Stop()
	d.Remove()
	if !b.keep {
		_ = os.RemoveAll(filepath.Dir(d.Database))
	}
	return err
}
