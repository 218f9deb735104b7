package supervise

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/windows"

	"github.com/ckptsidecar/ckptsidecar/internal/cli/term"
)

// forwardedSignals are the signals that Windows has: Ctrl-C, and the end of a session.
var forwardedSignals = []os.Signal{os.Interrupt, syscall.SIGTERM}

func asksToStop(os.Signal) bool { return true }

// child is the supervised process. Windows fixes a process's environment when it creates
// the process. Therefore the run is claimed for exec itself. The child's life is tied to
// that of exec: a job object ends it, and everything that it has started, together with
// exec.
type child struct {
	cmd   *exec.Cmd
	job   windows.Handle
	group bool
	told  int // its number as the daemon has it
	ended chan *os.ProcessState
}

// newChild prepares everything that does not depend on the claim.
func (s *supervisor) newChild() (*child, error) {
	job, err := newJob()
	if err != nil {
		return nil, fmt.Errorf("cannot create a job object for the command: %w", err)
	}
	c := &child{cmd: &exec.Cmd{}, job: job, group: !s.a.Interactive, ended: make(chan *os.ProcessState, 1)}
	c.cmd.Stdin, c.cmd.Stdout, c.cmd.Stderr = s.a.Stdin, term.Raw(s.a.Stdout), term.Raw(s.a.Stderr)
	c.cmd.SysProcAttr = &syscall.SysProcAttr{}
	if c.group {
		c.cmd.SysProcAttr.CreationFlags = windows.CREATE_NEW_PROCESS_GROUP
	}
	return c, nil
}

func newJob() (windows.Handle, error) {
	job, err := windows.CreateJobObject(nil, nil)
	if err != nil {
		return 0, err
	}
	info := windows.JOBOBJECT_EXTENDED_LIMIT_INFORMATION{}
	info.BasicLimitInformation.LimitFlags = windows.JOB_OBJECT_LIMIT_KILL_ON_JOB_CLOSE
	_, err = windows.SetInformationJobObject(job, windows.JobObjectExtendedLimitInformation,
		uintptr(unsafe.Pointer(&info)), uint32(unsafe.Sizeof(info)))
	if err != nil {
		_ = windows.CloseHandle(job)
		return 0, err
	}
	return job, nil
}

func (c *child) pid() int { return c.cmd.Process.Pid }

// owner returns the pid of exec itself.
func (c *child) owner() int { return os.Getpid() }

// begin starts the command.
func (c *child) begin(env []string, path string, args []string) error {
	c.cmd.Path, c.cmd.Args, c.cmd.Env = path, args, env
	if err := c.cmd.Start(); err != nil {
		return err
	}
	if err := c.tie(); err != nil {
		_ = c.cmd.Process.Kill()
		_ = c.cmd.Wait()
		return err
	}
	go func() {
		_ = c.cmd.Wait()
		_ = windows.CloseHandle(c.job)
		c.ended <- c.cmd.ProcessState
	}()
	return nil
}

func (c *child) tie() error {
	process, err := windows.OpenProcess(windows.PROCESS_SET_QUOTA|windows.PROCESS_TERMINATE, false, uint32(c.pid()))
	if err != nil {
		return fmt.Errorf("the command could not be added to the job object: %w", err)
	}
	defer windows.CloseHandle(process)
	if err := windows.AssignProcessToJobObject(c.job, process); err != nil {
		return fmt.Errorf("the command could not be added to the job object: %w", err)
	}
	return nil
}

// abandon gives up a child that has not begun.
func (c *child) abandon() { _ = windows.CloseHandle(c.job) }

// signal passes on what Windows supports: a process in its own group can be asked to stop
// with Ctrl-Break, which it gets if it has this console.
func (c *child) signal(os.Signal) error {
	if !c.group {
		return errors.ErrUnsupported // the child has got it from the console already
	}
	return windows.GenerateConsoleCtrlEvent(windows.CTRL_BREAK_EVENT, uint32(c.pid()))
}

// terminate asks the child to stop, and kills it if it cannot be asked.
func (c *child) terminate() error {
	if c.signal(nil) == nil {
		return nil
	}
	return c.kill()
}

func (c *child) kill() error { return windows.TerminateJobObject(c.job, 1) }

// sweep does nothing: the job has ended what the child left running.
func (c *child) sweep() {}

// left always returns false: the job has ended what the child left running.
func (c *child) left() bool { return false }

// owns reports whether a process is the child or exec, which owns the run for the child.
func (c *child) owns(pid int) bool { return pid == c.pid() || pid == os.Getpid() }

// stopped always returns false: Windows does not stop processes as Unix does.
// progress_timeout finds a child that hangs.
func (c *child) stopped() bool { return false }

func exitStatus(state *os.ProcessState) int { return state.ExitCode() }

// absoluteEndpoint returns pipes unchanged.
func absoluteEndpoint(path string) (string, error) {
	if strings.HasPrefix(path, `\\`) {
		return path, nil
	}
	return filepath.Abs(path)
}

// PlatformCommands are the commands that exist only on this system.
type PlatformCommands struct{}

// otherNamespace returns false: this system has one space of process numbers.
func otherNamespace() bool { return false }
