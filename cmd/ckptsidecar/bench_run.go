package main

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

// bench is a daemon and a folder on the disk that is measured.
type bench struct {
	dir    string
	each   time.Duration
	seed   uint64
	daemon *ownDaemon
}

func (a *app) openBench(ctx context.Context, dir string, each time.Duration, seed uint64) (*bench, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	if dir, err = os.MkdirTemp(dir, "ckptsidecar-bench-"); err != nil {
		return nil, fmt.Errorf("cannot write in the folder to measure: %w", err)
	}
	b := &bench{dir: dir, each: each, seed: seed}
	if b.daemon, err = a.startDaemon(ctx, dir); err != nil {
		os.RemoveAll(dir)
		return nil, err
	}
	return b, nil
}

func (b *bench) close() {
	_ = b.daemon.stop()
	b.daemon.remove()
	os.RemoveAll(b.dir)
}

// sample is what one measurement gave.
type sample struct{ rate, p50, p99 float64 }

// save lets clients save states as fast as each is acknowledged, every client
// for an agent and over a connection of its own.
func (b *bench) save(ctx context.Context, clients int, size int64) (sample, error) {
	return b.run(ctx, clients, size, func(n int) func([]byte) error {
		client, agent := b.daemon.client(), fmt.Sprintf("bench-%d-%d", size, n)
		return func(state []byte) error {
			_, err := client.Save(ctx, &ckpt.SaveRequest{
				Agent: agent, Kind: ckpt.KindRoutine, ContentType: "text/plain", State: slices.Clone(state),
			})
			return err
		}
	})
}

// raw lets them append to one log instead.
func (b *bench) raw(ctx context.Context, clients int, size int64) (sample, error) {
	log, err := openRawLog(filepath.Join(b.dir, "raw.log"))
	if err != nil {
		return sample{}, err
	}
	defer log.remove()
	return b.run(ctx, clients, size, func(int) func([]byte) error { return log.append })
}

// run measures for a while what each client does in a loop. The bytes are
// text that does not compress or repeat, new in each round of the loop.
func (b *bench) run(ctx context.Context, clients int, size int64, open func(n int) func([]byte) error) (sample, error) {
	var (
		group sync.WaitGroup
		mu    sync.Mutex
		all   []float64
		errs  []error
	)
	began := time.Now()
	for n := range clients {
		group.Go(func() {
			took, err := b.client(ctx, n, size, began.Add(b.each), open(n))
			mu.Lock()
			defer mu.Unlock()
			all, errs = append(all, took...), append(errs, err)
		})
	}
	group.Wait()
	elapsed := time.Since(began).Seconds()
	if err := errors.Join(append(errs, ctx.Err())...); err != nil {
		return sample{}, err
	}
	slices.Sort(all)
	return sample{rate: float64(len(all)) / elapsed, p50: quantile(all, 0.5), p99: quantile(all, 0.99)}, nil
}

func (b *bench) client(ctx context.Context, n int, size int64, until time.Time, do func([]byte) error) ([]float64, error) {
	source := newStates(b.seed+uint64(n), size)
	var took []float64
	for time.Now().Before(until) && ctx.Err() == nil {
		state := source.next()
		began := time.Now()
		if err := do(state); err != nil {
			return took, err
		}
		took = append(took, float64(time.Since(began))/float64(time.Millisecond))
	}
	return took, nil
}

// states makes texts of one size out of a block of random ones. Turning the
// block by an odd stride and stamping a number into it costs nothing beside a
// save, and no two are alike.
type states struct {
	block []byte
	size  int
	n     int
}

func newStates(seed uint64, size int64) *states {
	random := rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8), byte(seed >> 16), byte(seed >> 24)})
	bytes := make([]byte, 2*size)
	_, _ = random.Read(bytes)
	return &states{block: []byte(base64.StdEncoding.EncodeToString(bytes)), size: int(size)}
}

func (s *states) next() []byte {
	s.n++
	at := s.n * 7919 % (len(s.block) - s.size)
	state := s.block[at : at+s.size]
	copy(state, fmt.Sprint(s.n))
	return state
}

func quantile(sorted []float64, q float64) float64 {
	if len(sorted) == 0 {
		return math.NaN()
	}
	return sorted[min(len(sorted)-1, int(q*float64(len(sorted))))]
}

func median(values []float64) float64 {
	slices.Sort(values)
	return quantile(values, 0.5)
}
