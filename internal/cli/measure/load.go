package measure

import (
	"context"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/ckptsidecar/ckptsidecar/internal/cli/program"
	"github.com/ckptsidecar/ckptsidecar/internal/ipc/client"
)

// Task does something once and returns how long that took. Preparations, such as making a
// state, do not count.
type Task func(context.Context) (time.Duration, error)

// Load is a number of clients that each repeat their task without a pause.
type Load struct {
	Clients int
	During  time.Duration
	Most    int // tasks of one client; 0 means no limit but the time
}

// Run measures. Each client does its task once before the measurement, so that
// connections, agents and caches exist.
func (l Load) Run(ctx context.Context, open func(n int) (Task, error)) (Figures, error) {
	tasks := make([]Task, l.Clients)
	err := l.Each(ctx, func(ctx context.Context, n int) (err error) {
		if tasks[n], err = open(n); err == nil {
			_, err = tasks[n](ctx)
		}
		return err
	})
	if err != nil {
		return Figures{}, err
	}
	var mu sync.Mutex
	var all []float64
	began := time.Now()
	err = l.Each(ctx, func(ctx context.Context, n int) error {
		took, err := l.repeat(ctx, tasks[n], began.Add(l.During))
		mu.Lock()
		defer mu.Unlock()
		all = append(all, took...)
		return err
	})
	return FiguresOf(all, time.Since(began)), err
}

// Each runs a function for all clients at once; the first error ends it.
func (l Load) Each(ctx context.Context, do func(ctx context.Context, n int) error) error {
	group, ctx := errgroup.WithContext(ctx)
	for n := range l.Clients {
		group.Go(func() error { return do(ctx, n) })
	}
	return group.Wait()
}

func (l Load) repeat(ctx context.Context, t Task, until time.Time) (took []float64, err error) {
	for {
		if err := ctx.Err(); err != nil { // a task need not check the context
			return took, err
		}
		one, err := t(ctx)
		if err != nil {
			return took, err
		}
		took = append(took, Milliseconds(one))
		if len(took) == l.Most || !time.Now().Before(until) {
			return took, ctx.Err()
		}
	}
}

// Daemon is a daemon and one connection for each client. The connections stay open from
// one measurement to the next.
type Daemon struct {
	*program.Daemon
	mu      sync.Mutex
	clients []*client.Client
	filled  map[string]bool // the agents whose runs exist
}

// ClientOf returns the connection of client n.
func (d *Daemon) ClientOf(n int) *client.Client {
	d.mu.Lock()
	defer d.mu.Unlock()
	for len(d.clients) <= n {
		c := d.Client()
		c.Retry = 10 * time.Second // a client that is told to wait does so, and the time counts
		d.clients = append(d.clients, c)
	}
	return d.clients[n]
}

// HangUp closes all connections before the daemon ends.
func (d *Daemon) HangUp() {
	for _, c := range d.clients {
		c.Close()
	}
	d.clients = nil
}

// Start starts a daemon with its database in a folder with this name.
func (b *Bench) Start(ctx context.Context, name string) (*Daemon, error) {
	dir := filepath.Join(b.Dir, name)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	own, err := b.a.Start(ctx, dir)
	if err != nil {
		return nil, err
	}
	d := &Daemon{Daemon: own}
	b.daemons = append(b.daemons, d)
	return d, nil
}

// End stops a daemon and removes its database.
func (b *Bench) End(d *Daemon) error {
	d.HangUp()
	err := d.Stop()
	d.Remove()
	if !b.keep {
		_ = os.RemoveAll(filepath.Dir(d.Database))
	}
	return err
}
