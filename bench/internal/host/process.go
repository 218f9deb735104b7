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

// Spec is a process to start.
type Spec struct {
	Name string // for messages
	Path string
	Args []string
	Env  []string // added to this process's own
	Dir  string
	User *User // nil for this process's own
	Pipe bool  // connect standard input and output
}

// User is who a process runs as.
type User struct{ UID, GID int }

// Process is one that was started, with all its children.
type Process struct {
	In  io.WriteCloser // with Spec.Pipe
	Out io.ReadCloser

	name  string
	cmd   *exec.Cmd
	tail  tail
	ended chan struct{}
	err   error
}

// Start starts a process that ends at the latest when this one does.
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
	// Not StdoutPipe: Wait would close it before all is read.
	r, w, err := os.Pipe()
	p.Out, p.cmd.Stdout = r, w
	if err == nil {
		go func() { <-p.ended; w.Close() }()
	}
	return err
}

// PID is the process's number.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Ended is closed when the process has ended.
func (p *Process) Ended() <-chan struct{} { return p.ended }

// Failure describes how it ended, with the last that it said.
func (p *Process) Failure() error {
	select {
	case <-p.ended:
		return fmt.Errorf("%s ended: %v: %s", p.name, p.err, p.tail.text())
	default:
		return fmt.Errorf("%s said last: %s", p.name, p.tail.text())
	}
}

// family is the process and its children. Of one that has ended there is none:
// its number may be another's by now.
func (p *Process) family() ([]member, error) {
	select {
	case <-p.ended:
		return nil, nil
	default:
		return tree(p.PID())
	}
}

// Tree is the numbers of the process and all its children.
func (p *Process) Tree() ([]int, error) {
	family, err := p.family()
	pids := make([]int, len(family))
	for i, m := range family {
		pids[i] = m.pid
	}
	return pids, err
}

// Kill ends it and its children at once.
func (p *Process) Kill() {
	if family, err := p.family(); err == nil {
		killAll(family)
	}
	<-p.ended
}

// Stop asks it to end by a signal, or by the end of its standard input where
// the signal is nil, and kills it with its children when it does not.
func (p *Process) Stop(signal os.Signal, patience time.Duration) error {
	_ = p.Resume()
	family, _ := p.family()
	if signal == nil {
		_ = p.In.Close()
	} else {
		_ = p.cmd.Process.Signal(signal)
	}
	defer killAll(family) // what it has left behind
	select {
	case <-p.ended:
		return p.ending(signal)
	case <-time.After(patience):
	}
	p.Kill()
	return fmt.Errorf("%s did not stop in %s and was killed", p.name, patience)
}

// ending is the error of a process that was asked to end: some do so by the
// signal itself.
func (p *Process) ending(signal os.Signal) error {
	if status, ok := p.cmd.ProcessState.Sys().(syscall.WaitStatus); ok && status.Signaled() && status.Signal() == signal {
		return nil
	}
	return p.err
}

// WaitFor asks until the answer is nil, the process has ended, or it takes too long.
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

// Run is a whole process: it waits until it has ended, and kills it when ctx ends.
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

// tail keeps the last that a process has said.
type tail struct {
	mu   sync.Mutex
	said bytes.Buffer
}

const tailMost = 4 << 10

// Write takes what is said.
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
