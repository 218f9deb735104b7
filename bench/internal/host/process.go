package host

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Spec describes a process to start.
type Spec struct {
	Name string // for messages
	Path string
	Args []string
	Env  []string // added to the environment of this process
	Dir  string
	User *User // nil for the user of this process
	Pipe bool  // connect standard input and output
}

// User is the user that a process runs as.
type User struct{ UID, GID int }

// Process is a process that was started, with all its children.
type Process struct {
	In  io.WriteCloser // with Spec.Pipe
	Out io.ReadCloser

	name  string
	cmd   *exec.Cmd
	tail  tail
	ended chan struct{}
	err   error
}

// Start starts a process that ends no later than this process.
func Start(spec Spec) (*Process, error) {
	p := &Process{name: spec.Name, cmd: exec.Command(spec.Path, spec.Args...), ended: make(chan struct{})}
	p.cmd.Env, p.cmd.Dir = append(os.Environ(), spec.Env...), spec.Dir
	p.cmd.Stderr = &p.tail
	if err := p.connect(spec.Pipe); err != nil {
		return nil, err
	}
	if err := startChild(p.cmd, spec.User); err != nil {
		return nil, fmt.Errorf("%s cannot be started: %w", spec.Name, err)
	}
	go func() {
		p.err = p.cmd.Wait()
		close(p.ended)
	}()
	return p, nil
}

func (p *Process) connect(pipe bool) (err error) {
	if !pipe {
		p.cmd.Stdout = &p.tail
		return nil
	}
	if p.In, err = p.cmd.StdinPipe(); err != nil {
		return err
	}
	// StdoutPipe would not work: Wait would close it before everything is read.
	r, w, err := os.Pipe()
	p.Out, p.cmd.Stdout = r, w
	if err == nil {
		go func() { <-p.ended; w.Close() }()
	}
	return err
}

// PID returns the number of the process.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Ended returns a channel that is closed when the process has ended.
func (p *Process) Ended() <-chan struct{} { return p.ended }

// Failure describes how the process ended, with its last output on standard error.
func (p *Process) Failure() error {
	select {
	case <-p.ended:
		return fmt.Errorf("%s ended: %v: %s", p.name, p.err, p.tail.text())
	default:
		return fmt.Errorf("%s said last: %s", p.name, p.tail.text())
	}
}

// family returns the process and its children. It returns none if the process has ended, because
// another process may have its number by then.
func (p *Process) family() ([]member, error) {
	select {
	case <-p.ended:
		return nil, nil
	default:
		return tree(p.PID())
	}
}

// Tree returns the numbers of the process and all its children.
func (p *Process) Tree() ([]int, error) {
	family, err := p.family()
	pids := make([]int, len(family))
	for i, m := range family {
		pids[i] = m.pid
	}
	return pids, err
}

// Kill ends the process and its children at once.
func (p *Process) Kill() {
	if family, err := p.family(); err == nil {
		killAll(family)
	}
	<-p.ended
}

// Stop asks the process to end by a signal, or by closing its standard input if the signal is nil.
// If it does not end, Stop kills it with its children.
func (p *Process) Stop(signal os.Signal, patience time.Duration) error {
	_ = p.Resume()
	family, _ := p.family()
	if signal == nil {
		_ = p.In.Close()
	} else {
		_ = p.cmd.Process.Signal(signal)
	}
	defer killAll(family) // the children that it left behind
	select {
	case <-p.ended:
		return p.ending(signal)
	case <-time.After(patience):
	}
	p.Kill()
	return fmt.Errorf("%s did not stop in %s and was killed", p.name, patience)
}

// ending returns the error of a process that was asked to end. It is nil if the process ended by
// the signal itself, as some do.
func (p *Process) ending(signal os.Signal) error {
	if status, ok := p.cmd.ProcessState.Sys().(syscall.WaitStatus); ok && status.Signaled() && status.Signal() == signal {
		return nil
	}
	return p.err
}

// WaitFor calls ask until it returns nil, the process has ended, or it takes too long.
func (p *Process) WaitFor(ctx context.Context, patience time.Duration, ask func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		err := ask(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-p.ended:
			return p.Failure()
		case <-ctx.Done():
			return fmt.Errorf("%s did not become ready: %w (%v)", p.name, err, p.Failure())
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// Run runs a whole process: it waits until the process has ended, and kills it when ctx ends.
func Run(ctx context.Context, spec Spec) error {
	p, err := Start(spec)
	if err != nil {
		return err
	}
	select {
	case <-p.ended:
	case <-ctx.Done():
		p.Kill()
		return ctx.Err()
	}
	if p.err != nil {
		return p.Failure()
	}
	return nil
}

// tail keeps the last part of a process's output.
type tail struct {
	mu   sync.Mutex
	said bytes.Buffer
}

const tailMost = 4 << 10

// Write takes output of the process.
func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.said.Write(b)
	if more := t.said.Len() - tailMost; more > 0 {
		t.said.Next(more)
	}
	return len(b), nil
}

func (t *tail) text() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	if said := strings.TrimSpace(t.said.String()); said != "" {
		return said
	}
	return "nothing"
}
