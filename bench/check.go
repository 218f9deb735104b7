package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/ckptsidecar/ckptsidecar/bench/internal/figures"
	"github.com/ckptsidecar/ckptsidecar/bench/internal/host"
	"github.com/ckptsidecar/ckptsidecar/bench/internal/load"
)

// flushes is what strace counted for one system while one client saved.
type flushes struct {
	Checked bool   `json:"checked"`
	Why     string `json:"why,omitempty"` // why it was not checked
	Saves   int    `json:"saves"`
	Flushes int    `json:"flushes"`
}

const checkSaves = 100

// check counts the flushes of each system. A system that acknowledges more saves of one client than
// it flushes does not do the same work, so it is left out.
func (c *comparison) check(ctx context.Context) error {
	c.say("counting flushes")
	strace, err := exec.LookPath("strace")
	if err != nil {
		c.say("there is no strace, so that nothing says whether saves are flushed")
		return nil
	}
	for _, p := range c.peers {
		if p.out != "" {
			continue
		}
		seen, err := c.checkOne(ctx, strace, p)
		if err == nil {
			c.report.flushes(p.Name(), *seen)
			if seen.Checked && seen.Flushes < seen.Saves {
				err = fmt.Errorf("it is not durable: it has flushed %d times for %d saves of one client", seen.Flushes, seen.Saves)
			}
		}
		if err := c.failed(ctx, p, err); err != nil {
			return err
		}
	}
	return nil
}

func (c *comparison) checkOne(ctx context.Context, strace string, p *peer) (*flushes, error) {
	dir := filepath.Join(c.scratch, "check-"+p.Name())
	defer os.RemoveAll(dir)
	r, err := c.startOne(ctx, dir, p)
	if err != nil {
		return nil, err
	}
	seen, err := c.watch(ctx, strace, r)
	return seen, errors.Join(err, r.Stop())
}

func (c *comparison) watch(ctx context.Context, strace string, r *running) (*flushes, error) {
	if err := r.Resume(); err != nil {
		return nil, err
	}
	// Run once before counting, so that there is a connection, and the processes that a server
	// forks for it.
	if _, err := r.Run(ctx, load.Order{Clients: 1, Size: figures.Small, Limit: 1}); err != nil {
		return nil, err
	}
	pids, err := r.Keepers()
	if err != nil {
		return nil, err
	}
	tracer, err := attach(ctx, strace, filepath.Join(c.scratch, "strace"), pids)
	if err != nil {
		return &flushes{Why: err.Error()}, nil
	}
	answer, err := r.Run(ctx, load.Order{Clients: 1, Size: figures.Small, Limit: checkSaves})
	count, counted := tracer.end()
	switch {
	case err != nil:
		return nil, err
	case counted != nil:
		return &flushes{Why: counted.Error()}, nil
	}
	return &flushes{Checked: true, Saves: answer.Saves, Flushes: count}, nil
}

// tracer is a strace that counts the flushes of some processes.
type tracer struct {
	process *host.Process
	out     string
}

// attach starts strace and waits until it traces all of the processes.
func attach(ctx context.Context, strace, out string, pids []int) (*tracer, error) {
	args := []string{"-f", "-c", "-e", "trace=fsync,fdatasync", "-o", out}
	for _, pid := range pids {
		args = append(args, "-p", strconv.Itoa(pid))
	}
	p, err := host.Start(host.Spec{Name: "strace", Path: strace, Args: args})
	if err != nil {
		return nil, err
	}
	err = p.WaitFor(ctx, 10*time.Second, func(context.Context) error {
		for _, pid := range pids {
			if by := tracedBy(pid); by != p.PID() {
				return fmt.Errorf("strace does not have process %d yet", pid)
			}
		}
		return nil
	})
	if err != nil {
		p.Kill()
		return nil, err
	}
	return &tracer{p, out}, nil
}

// tracedBy returns the PID of the process that traces all threads of a process, or 0 if there is
// none.
func tracedBy(pid int) int {
	threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", pid))
	by := 0
	for _, path := range threads {
		text, err := os.ReadFile(path)
		if err != nil {
			continue // the thread has ended
		}
		_, rest, _ := bytes.Cut(text, []byte("\nTracerPid:"))
		line, _, _ := bytes.Cut(rest, []byte("\n"))
		tracer, _ := strconv.Atoi(string(bytes.TrimSpace(line)))
		if tracer == 0 {
			return 0
		}
		by = tracer
	}
	return by
}

// end detaches strace and reads its count.
func (t *tracer) end() (int, error) {
	_ = t.process.Stop(os.Interrupt, 10*time.Second) // strace ends as if by the signal
	text, err := os.ReadFile(t.out)
	if err != nil {
		return 0, err
	}
	return countCalls(string(text))
}

// countCalls sums the calls in the summary of strace -c: a table whose fourth column is the count
// and whose last column is the name.
func countCalls(summary string) (sum int, err error) {
	lines := bufio.NewScanner(strings.NewReader(summary))
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) < 5 || !strings.Contains(fields[len(fields)-1], "sync") {
			continue
		}
		calls, err := strconv.Atoi(fields[3])
		if err != nil {
			return 0, fmt.Errorf("the summary of strace has a line that cannot be read: %q", lines.Text())
		}
		sum += calls
	}
	return sum, lines.Err()
}
