package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/ckptsidecar/ckptsidecar/bench/internal/host"
	"github.com/ckptsidecar/ckptsidecar/bench/internal/load"
	"github.com/ckptsidecar/ckptsidecar/bench/internal/systems"
)

// comparison is one run of this program.
type comparison struct {
	*options
	disk    *host.Disk
	scratch string
	release func()
	peers   []*peer
	report  *report
}

// peer is a system in a comparison.
type peer struct {
	systems.System
	out string // why it is left out, "" if it is not
}

// compare prepares, checks and measures. It also returns a report if the time ran out before all
// rounds were done.
func compare(ctx context.Context, o *options) (*report, error) {
	c := &comparison{options: o, report: newReport(o)}
	if err := c.open(); err != nil {
		return nil, err
	}
	defer c.close()
	if err := c.prepare(ctx); err != nil {
		return nil, err
	}
	limited, cancel := context.WithTimeout(ctx, o.limit)
	defer cancel()
	err := c.check(limited)
	if err == nil {
		err = c.keep(limited)
	}
	for round := 0; round < o.rounds && err == nil; round++ {
		err = c.round(limited, round)
	}
	switch {
	case ctx.Err() != nil:
		return nil, errors.New("interrupted; everything it has started and written is gone")
	case errors.Is(err, context.DeadlineExceeded) && limited.Err() != nil:
		c.say("the time of %s is over", o.limit)
		c.report.Cut, err = true, nil
	}
	if err != nil {
		return nil, err
	}
	c.report.finish(c.peers)
	return c.report, nil
}

// freeLeast is how many bytes must be free before each phase. Every phase removes its data at the
// end.
const freeLeast = 8 << 30

func (c *comparison) open() (err error) {
	if c.disk, err = host.OpenDisk(c.dir); err != nil {
		return err
	}
	c.report.Disk = c.disk.Kind()
	if err = c.room(); err == nil {
		c.scratch, c.release, err = makeScratch(c.dir)
	}
	if err != nil {
		c.disk.Close()
	}
	return err
}

func (c *comparison) room() error {
	free, err := c.disk.Free()
	if err == nil && free < freeLeast {
		err = fmt.Errorf("%s has only %d MiB free, and %d are needed: name a folder on another disk with --dir", c.dir, free>>20, freeLeast>>20)
	}
	return err
}

func (c *comparison) close() {
	c.release()
	c.disk.Close()
}

func (c *comparison) say(format string, args ...any) {
	fmt.Fprintf(os.Stderr, format+"\n", args...)
}

// prepare finds or installs every system. It fails if it cannot prepare the product, because then
// there is nothing to compare; it leaves out any other system that it cannot prepare.
func (c *comparison) prepare(ctx context.Context) error {
	w, err := c.workshop(ctx)
	if err != nil {
		return err
	}
	for _, s := range systems.All() {
		ours := s.Name() == systems.Ours
		if !ours && !c.wants(s.Name()) {
			continue
		}
		p := &peer{System: s}
		c.peers = append(c.peers, p)
		err := s.Prepare(ctx, w)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil && ours:
			return fmt.Errorf("the program of ckptsidecar: %w; `make build` makes it", err)
		case err != nil:
			c.leaveOut(p, err)
		}
	}
	return nil
}

func (c *comparison) workshop(ctx context.Context) (*systems.Workshop, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	server, err1 := filepath.Abs(c.server)
	cache, err2 := filepath.Abs(c.cache)
	corpus, err3 := c.corpus(ctx)
	return &systems.Workshop{
		Self: self, Server: server, Corpus: corpus, Scratch: c.scratch, Cache: cache, Offline: c.offline, Say: c.say,
	}, errors.Join(err1, err2, err3)
}

const corpusMost = 24 << 20

func (c *comparison) corpus(ctx context.Context) (string, error) {
	goroot, err := exec.CommandContext(ctx, "go", "env", "GOROOT").Output()
	if err != nil {
		return "", fmt.Errorf("go env GOROOT: %w; the text of the states is Go's source", err)
	}
	text, err := load.ReadCorpus(strings.TrimSpace(string(goroot)), corpusMost)
	if err != nil {
		return "", err
	}
	path := filepath.Join(c.scratch, "corpus")
	return path, os.WriteFile(path, text, 0o644)
}

// leaveOut records why a peer is not measured, or not measured any longer.
func (c *comparison) leaveOut(p *peer, why error) {
	p.out = why.Error()
	c.say("without %s: %v", p.Name(), why)
}
