package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"

	"github.com/ckptsidecar/ckptsidecar/bench/internal/load"
)

// keep lets each system keep one complete history of every kind, and measures how much disk space
// it takes after a clean stop. The speed does not count here.
func (c *comparison) keep(ctx context.Context) error {
	for _, p := range phases() {
		if !p.history() {
			continue
		}
		c.say("keeping %d states of %s", c.kept, p.title)
		for _, one := range c.peers {
			if one.out != "" || !p.has(one.Name()) {
				continue
			}
			if err := c.failed(ctx, one, c.keepOne(ctx, &p, one)); err != nil {
				return err
			}
		}
	}
	return nil
}

func (c *comparison) keepOne(ctx context.Context, p *phase, one *peer) error {
	dir := filepath.Join(c.scratch, "keep-"+one.Name())
	defer os.RemoveAll(dir)
	r, err := c.startOne(ctx, dir, one)
	if err != nil {
		return err
	}
	cell := p.cells[0]
	err = r.Resume()
	if err == nil {
		_, err = r.Run(ctx, load.Order{Clients: 1, Size: cell.Size, Step: cell.Step, Limit: c.kept - 1})
	}
	if err := errors.Join(err, r.Stop()); err != nil {
		return err
	}
	bytes, err := r.Stored()
	if err == nil {
		c.report.stored(cell, one.Name(), float64(bytes)/float64(r.Saves))
	}
	return err
}
