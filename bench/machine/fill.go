package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/cli/measure"
	"github.com/ckptsidecar/ckptsidecar/internal/cli/term"
)

// filling makes databases with more and more checkpoints, with saves of many clients at once. Half
// of the checkpoints belong to a few agents with one long run each, which keeps all its
// checkpoints. The other half belongs to as many agents with very many runs, each of which has the
// 3 checkpoints of the default policy.
type filling struct {
	b       *measure.Bench
	clients int
	pool    *measure.States
	total   int64

	began  time.Time
	saved  atomic.Int64
	points []fillPoint

	mu  sync.Mutex
	ids []string
}

const (
	longAgents = 16
	manyAgents = 16
	someIDs    = 2000 // ids that are kept for reading
)

func longAgent(n int64) string { return fmt.Sprintf("long-%02d", n%longAgents) }
func manyAgent(n int64) string { return fmt.Sprintf("many-%02d", n%manyAgents) }

// databases makes one database for each number of rows. Each is a copy of the one before, plus more
// saves.
func (f *filling) databases(ctx context.Context, rows []int64) ([]scaleDatabase, error) {
	f.began = time.Now()
	var list []scaleDatabase
	for i, n := range rows {
		name := fmt.Sprintf("rows-%d", n)
		if i > 0 {
			f.b.Shown.Say("copying the database of %s checkpoints", countText(rows[i-1]))
			if err := copyDatabase(ctx, list[i-1].daemon.Database, filepath.Join(f.b.Dir, name)); err != nil {
				return nil, err
			}
		}
		d, err := f.b.Start(ctx, name)
		if err != nil {
			return nil, err
		}
		one, err := f.database(ctx, d, n)
		if err != nil {
			return nil, err
		}
		list = append(list, *one)
	}
	return list, nil
}

// database fills one database up to the given number of rows, and stops its daemon.
func (f *filling) database(ctx context.Context, d *measure.Daemon, rows int64) (*scaleDatabase, error) {
	if err := f.keepAll(ctx, d); err != nil {
		return nil, err
	}
	began, before := time.Now(), f.saved.Load()
	if err := f.fill(ctx, d, rows); err != nil {
		return nil, err
	}
	one := &scaleDatabase{Rows: rows, Seconds: measure.Rounded(time.Since(began).Seconds()), daemon: d, ids: slices.Clone(f.ids)}
	one.Rate = measure.Rounded(float64(rows-before) / time.Since(began).Seconds())
	d.HangUp()
	if err := d.Stop(); err != nil {
		return nil, err
	}
	var err error
	one.Bytes, err = databaseBytes(d.Database)
	return one, err
}

func (f *filling) keepAll(ctx context.Context, d *measure.Daemon) error {
	policy := ckpt.DefaultPolicy()
	policy.RoutineKeep = 0
	for n := range int64(longAgents) {
		if _, err := d.ClientOf(0).SetPolicy(ctx, longAgent(n), policy); err != nil {
			return err
		}
	}
	return nil
}

// fill saves until there are the given number of rows.
func (f *filling) fill(ctx context.Context, d *measure.Daemon, rows int64) error {
	var next atomic.Int64
	next.Store(f.saved.Load())
	ctx, done := context.WithCancel(ctx)
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		f.watch(ctx)
	}()
	err := measure.Load{Clients: f.clients}.Each(ctx, func(ctx context.Context, n int) error {
		client, states := d.ClientOf(n), f.pool.Reader(n)
		for {
			row := next.Add(1) - 1
			if row >= rows {
				return nil
			}
			saved, err := client.Save(ctx, f.request(row, states.Next()))
			if err != nil {
				return err
			}
			f.note(row, saved.ID)
		}
	})
	done()
	<-watched
	return err
}

// request returns the save that makes a row.
func (f *filling) request(row int64, state []byte) *ckpt.SaveRequest {
	r := &ckpt.SaveRequest{Kind: ckpt.KindRoutine, ContentType: ckpt.ContentTypeJSON, State: state}
	if half := row / 2; row%2 == 0 {
		r.Agent = longAgent(half)
	} else {
		r.Agent, r.Run = manyAgent(half), fmt.Sprintf("run-%07d", half/manyAgents/3)
	}
	return r
}

// note counts a row, and keeps the ids of some rows.
func (f *filling) note(row int64, id string) {
	f.saved.Add(1)
	if row%max(1, f.total/someIDs) == 0 {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.ids = append(f.ids, id)
	}
}

// watch shows the progress, and records the speed.
func (f *filling) watch(ctx context.Context) {
	tick := time.NewTicker(250 * time.Millisecond)
	defer tick.Stop()
	at, from := time.Now(), f.saved.Load()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			saved := f.saved.Load()
			rate := float64(saved-from) / now.Sub(at).Seconds()
			f.points = append(f.points, fillPoint{saved, measure.Rounded(rate)})
			f.b.Shown.Say("filling: %s of %s checkpoints, %s a second%s", countText(saved), countText(f.total),
				measure.Rate(rate), term.TimeLeft(f.began, saved, f.total))
			at, from = now, saved
		}
	}
}

// copyDatabase copies a database that no daemon has open into a new folder.
func copyDatabase(ctx context.Context, db, dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	for _, suffix := range []string{"", "-wal"} {
		err := copyFile(ctx, db+suffix, filepath.Join(dir, filepath.Base(db)+suffix))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

func copyFile(ctx context.Context, from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	if _, err := io.Copy(out, contextReader{ctx, in}); err != nil {
		out.Close()
		return err
	}
	return errors.Join(out.Sync(), out.Close())
}

// contextReader ends a long copy when its context ends.
type contextReader struct {
	ctx context.Context
	io.Reader
}

func (r contextReader) Read(p []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	return r.Reader.Read(p)
}
