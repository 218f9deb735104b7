package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/ckptsidecar/ckptsidecar/bench/internal/figures"
	"github.com/ckptsidecar/ckptsidecar/bench/internal/load"
	"github.com/ckptsidecar/ckptsidecar/bench/internal/systems"
)

// running is a peer that runs in this phase.
type running struct {
	*peer
	*systems.Instance
}

// round measures every phase once.
func (c *comparison) round(ctx context.Context, n int) error {
	for _, p := range phases() {
		c.say("round %d of %d: %s", n+1, c.rounds, p.title)
		if err := c.phase(ctx, n, &p); err != nil {
			return err
		}
	}
	return nil
}

// phase starts the systems empty and measures each cell.
func (c *comparison) phase(ctx context.Context, round int, p *phase) (err error) {
	if err := c.room(); err != nil {
		return err
	}
	dir, err := os.MkdirTemp(c.scratch, "round-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := os.Chmod(dir, 0o755); err != nil {
		return err
	}
	all, err := c.start(ctx, dir, p)
	for i, cell := range p.cells {
		for _, r := range turned(all, round+i) {
			if err == nil {
				err = c.turn(ctx, round, cell, r)
			}
		}
	}
	return errors.Join(err, c.stop(all))
}

func (c *comparison) start(ctx context.Context, dir string, p *phase) ([]*running, error) {
	var all []*running
	for _, one := range c.peers {
		if one.out != "" || !p.has(one.Name()) {
			continue
		}
		r, err := c.startOne(ctx, filepath.Join(dir, one.Name()), one)
		if err := c.failed(ctx, one, err); err != nil {
			return all, err
		}
		if err == nil {
			all = append(all, r)
		}
	}
	return all, nil
}

func (c *comparison) startOne(ctx context.Context, dir string, p *peer) (*running, error) {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, err
	}
	i, err := p.Start(ctx, dir)
	if err != nil {
		return nil, err
	}
	if err := i.Pause(); err != nil {
		return nil, errors.Join(err, i.Stop())
	}
	c.report.version(p.Name(), i.Version)
	return &running{p, i}, nil
}

// failed handles an error of a system. Any system other than ours is left out from then on. An
// error that failed returns ends the run.
func (c *comparison) failed(ctx context.Context, p *peer, err error) error {
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	case p.Name() == systems.Ours:
		return fmt.Errorf("ckptsidecar: %w", err)
	}
	c.leaveOut(p, err)
	return nil
}

// turn lets one system work while the others are stopped.
func (c *comparison) turn(ctx context.Context, round int, cell figures.Cell, r *running) error {
	if r.out != "" {
		return nil
	}
	if err := c.disk.Settle(); err != nil {
		return err
	}
	err := r.Resume()
	if err == nil {
		var s figures.Sample
		if s, err = r.sample(ctx, c.order(cell)); err == nil {
			c.report.add(round, cell, r.Name(), s)
		}
	}
	return c.failed(ctx, r.peer, errors.Join(err, r.Pause()))
}

func (r *running) sample(ctx context.Context, o load.Order) (figures.Sample, error) {
	before, err := r.CPU()
	if err != nil {
		return figures.Sample{}, err
	}
	answer, err := r.Run(ctx, o)
	if err != nil {
		return figures.Sample{}, err
	}
	after, err := r.CPU()
	s := figures.NewSample(answer.Micros, answer.Seconds)
	s.CPU = (after - before).Seconds() * 1000 / float64(answer.Saves)
	return s, err
}

// stop ends all of them.
func (c *comparison) stop(all []*running) error {
	var errs []error
	for _, r := range all {
		err := r.Stop()
		switch {
		case err == nil || r.out != "":
		case r.Name() == systems.Ours:
			errs = append(errs, fmt.Errorf("ckptsidecar: %w", err))
		default:
			c.say("%s: %v", r.Name(), err)
		}
	}
	return errors.Join(errs...)
}
