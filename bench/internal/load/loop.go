package load

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"
)

// Store is a system that keeps states.
type Store interface {
	// Client runs body as one client of many; save returns when the state is durable. A history
	// keeps every state; otherwise only the newest state must be kept.
	Client(ctx context.Context, id Client, body func(save Save) error) error

	// Version returns the version of the driven system, "" if only its server knows it.
	Version() string

	// Close ends the store cleanly.
	Close() error
}

// Client names one client and says what it saves.
type Client struct {
	Name    string
	History bool
}

// Save saves one state. The store can use the bytes until it returns.
type Save func(seq int, state []byte) error

// Loop lets clients save.
type Loop struct {
	Store  Store
	Source *Source
}

// turn is the data that the clients of one order share.
type turn struct {
	order  Order
	primed sync.WaitGroup // each client has saved once, so all are connected
	begin  chan struct{}
	from   time.Time // the times count from this moment
	until  time.Time
	failed atomic.Bool

	mu     sync.Mutex
	micros []int64
	saves  int
}

// Run carries out an order. Each client saves once before the clock starts.
func (l *Loop) Run(ctx context.Context, o Order) (*Answer, error) {
	t := &turn{order: o, begin: make(chan struct{})}
	t.primed.Add(o.Clients)
	errs := make([]error, o.Clients)
	var group sync.WaitGroup
	for n := range o.Clients {
		writer := l.Source.Writer(n, o.Size, o.Step)
		group.Go(func() {
			var once sync.Once
			primed := func() { once.Do(t.primed.Done) }
			defer primed() // also if it could not even connect
			id := Client{Name: writer.Name, History: o.Step > 0}
			errs[n] = l.Store.Client(ctx, id, func(save Save) error { return t.client(ctx, writer, save, primed) })
			if errs[n] != nil {
				t.failed.Store(true)
			}
		})
	}
	t.primed.Wait()
	t.from = time.Now().Add(seconds(o.Warm))
	t.until = t.from.Add(o.Counted())
	close(t.begin)
	group.Wait()
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return &Answer{Saves: t.saves, Seconds: o.Seconds, Micros: t.micros}, ctx.Err()
}

func (t *turn) client(ctx context.Context, w *Writer, save Save, primed func()) error {
	if err := save(w.Next()); err != nil {
		return err
	}
	primed()
	<-t.begin
	saves, micros := 1, []int64(nil)
	for !t.over(saves - 1) {
		seq, state := w.Next()
		began := time.Now()
		if err := save(seq, state); err != nil {
			return err
		}
		saves++
		if ended := time.Now(); t.counts(ended) {
			micros = append(micros, ended.Sub(began).Microseconds())
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.saves += saves
	t.micros = append(t.micros, micros...)
	return ctx.Err()
}

func (t *turn) over(done int) bool {
	if t.failed.Load() {
		return true
	}
	if t.order.Limit > 0 {
		return done >= t.order.Limit
	}
	return !time.Now().Before(t.until)
}

// counts says whether a save that ended now is counted. A rate is the number of saves that ended in
// a span of time, divided by that span.
func (t *turn) counts(ended time.Time) bool {
	return t.order.Limit > 0 || !ended.Before(t.from) && ended.Before(t.until)
}
