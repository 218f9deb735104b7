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

// forwardedSignals are the signals that a program may want to get.
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

// child is the supervised process. The process must exist before the run can be claimed
// for it, and the run must be claimed before the process may begin. Therefore this
// program is started once more. It waits at a gate until it gets the command and its
// environment, and then becomes that command with the same pid.
type child struct {
	cmd   *exec.Cmd
	gate  *os.File
	group bool // it has its own process group
	told  int  // its number as the daemon has it, which can be in another process namespace; 0 if not known
	ended chan *os.ProcessState
}

// order is the message that is sent through the gate.
type order struct {
	Parent int      `json:"parent"`
	Path   string   `json:"path"`
	Args   []string `json:"args"`
	Env    []string `json:"env"`
}

// newChild starts the waiting process. In the foreground of a terminal, it stays in this
// process group, so that the terminal's keys reach it.
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

// start keeps the thread that forks for as long as the child lives, because Linux tells a
// child that its parent has died when that thread ends.
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

// begin opens the gate. A child that died before is treated like one that died
// afterwards: the attempt ends normally.
func (c *child) begin(env []string, path string, args []string) error {
	defer c.gate.Close()
	if json.NewEncoder(c.gate).Encode(order{os.Getpid(), path, args, env}) != nil {
		_ = c.kill()
	}
	return nil
}

// abandon makes a waiting child exit.
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

// sweep kills the processes that a child has left running.
func (c *child) sweep() {
	if c.group {
		_ = unix.Kill(-c.pid(), unix.SIGKILL)
	}
}

// owns reports whether a process is the child or belongs to its group.
func (c *child) owns(pid int) bool {
	if pid == c.pid() {
		return true
	}
	group, err := unix.Getpgid(pid)
	return pid > 0 && c.group && err == nil && group == c.pid()
}

// exitStatus returns the exit code that a shell would return.
func exitStatus(state *os.ProcessState) int {
	if w, ok := state.Sys().(syscall.WaitStatus); ok && w.Signaled() {
		return 128 + int(w.Signal())
	}
	return state.ExitCode()
}

func absoluteEndpoint(path string) (string, error) { return filepath.Abs(path) }

// PlatformCommands are the commands that exist only on this system.
type PlatformCommands struct {
	ExecChild execChildCmd `cmd:"" hidden:"" help:"The child process of exec."`
}

type execChildCmd struct{}

// Run waits at the gate and becomes the command. If the gate closes first, there is
// nothing to do.
func (c *execChildCmd) Run() error {
	runtime.LockOSThread() // the kernel applies the request to the thread that becomes the command
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
