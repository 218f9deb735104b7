//go:build unix

package supervise

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/ckptsidecar/ckptsidecar/internal/cli"
	"github.com/ckptsidecar/ckptsidecar/internal/cli/term"
)

// forwardedSignals are those that a program may want to hear about.
var forwardedSignals = []os.Signal{
	os.Interrupt, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGWINCH,
}

func asksToStop(sig os.Signal) bool {
	switch sig {
	case os.Interrupt, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT:
		return true
	}
	return false
}

// child is the supervised process. It has to be known before the run can be
// claimed for it, and the run has to be claimed before it may begin: so this
// program is started once more, waits at a gate until it is told the command
// and its environment, and becomes that command without changing its pid.
type child struct {
	cmd   *exec.Cmd
	gate  *os.File
	group bool // it has a process group of its own
	ended chan *os.ProcessState
}

// order is what goes through the gate.
type order struct {
	Parent int      `json:"parent"`
	Path   string   `json:"path"`
	Args   []string `json:"args"`
	Env    []string `json:"env"`
}

// newChild starts the process that waits. In the foreground of a terminal it
// stays in this process group, so that the terminal's keys reach it.
func (s *supervisor) newChild() (*child, error) {
	cmd, err := s.a.Again(context.Background(), "exec-child")
	if err != nil {
		return nil, err
	}
	theirs, ours, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer theirs.Close()
	cmd.Env = s.a.Environ
	cmd.Stdin, cmd.Stdout, cmd.Stderr = s.a.Stdin, term.Raw(s.a.Stdout), term.Raw(s.a.Stderr)
	cmd.ExtraFiles = []*os.File{theirs}
	c := &child{cmd: cmd, gate: ours, group: !s.a.Interactive, ended: make(chan *os.ProcessState, 1)}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: c.group}
	if err := c.start(); err != nil {
		ours.Close()
		return nil, err
	}
	return c, nil
}

// start keeps the thread that forks for as long as the child lives: Linux tells
// a child that its parent has died when that thread has.
func (c *child) start() error {
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := c.cmd.Start()
		started <- err
		if err == nil {
			_ = c.cmd.Wait()
			c.ended <- c.cmd.ProcessState
		}
	}()
	return <-started
}

func (c *child) pid() int   { return c.cmd.Process.Pid }
func (c *child) owner() int { return c.pid() }

// begin opens the gate. A child that died before counts as one that died after:
// the attempt ends as any other.
func (c *child) begin(env []string, path string, args []string) error {
	defer c.gate.Close()
	if json.NewEncoder(c.gate).Encode(order{os.Getpid(), path, args, env}) != nil {
		_ = c.kill()
	}
	return nil
}

// abandon lets a child that waits go away.
func (c *child) abandon() {
	_ = c.gate.Close()
	_ = c.cmd.Process.Kill()
	<-c.ended
}

func (c *child) signal(sig os.Signal) error {
	number, ok := sig.(syscall.Signal)
	if !ok {
		return errors.ErrUnsupported
	}
	if c.group {
		return unix.Kill(-c.pid(), number)
	}
	return c.cmd.Process.Signal(sig)
}

func (c *child) terminate() error { return c.signal(syscall.SIGTERM) }
func (c *child) kill() error      { return c.signal(syscall.SIGKILL) }

// sweep kills what a child that has ended left running.
func (c *child) sweep() {
	if c.group {
		_ = unix.Kill(-c.pid(), unix.SIGKILL)
	}
}

// owns says whether a process is the child or belongs to its group.
func (c *child) owns(pid int) bool {
	if pid == c.pid() {
		return true
	}
	group, err := unix.Getpgid(pid)
	return pid > 0 && c.group && err == nil && group == c.pid()
}

// exitStatus is the code that shells give.
func exitStatus(state *os.ProcessState) int {
	if w, ok := state.Sys().(syscall.WaitStatus); ok && w.Signaled() {
		return 128 + int(w.Signal())
	}
	return state.ExitCode()
}

func absoluteEndpoint(path string) (string, error) { return filepath.Abs(path) }

// PlatformCommands are those of this system alone.
type PlatformCommands struct {
	ExecChild execChildCmd `cmd:"" hidden:"" help:"The child process of exec."`
}

type execChildCmd struct{}

// Run waits at the gate and becomes the command. A gate that closes before says
// that there is nothing to do.
func (c *execChildCmd) Run() error {
	runtime.LockOSThread() // what is asked for of the kernel holds for the thread that becomes the command
	gate := os.NewFile(3, "gate")
	var o order
	if gate == nil || json.NewDecoder(gate).Decode(&o) != nil {
		return &cli.ExitError{Code: cli.ExitFailed}
	}
	gate.Close()
	if !dieWith(o.Parent) {
		return &cli.ExitError{Code: cli.ExitFailed}
	}
	err := syscall.Exec(o.Path, o.Args, o.Env)
	return &cli.ExitError{Code: exitNotExecutable, Message: fmt.Sprintf("cannot run %s: %v", o.Path, err)}
}
