package monitor

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/expect"
	"github.com/ckptsidecar/ckptsidecar/internal/liveness"
)

func init() {
	stories["headless"] = headless
	stories["reuse"] = reuse
	stories["hidepid"] = hidepid
	if os.Getenv(roleEnv) == "headless" {
		runtime.LockOSThread() // in init this is the first thread
	}
}

// TestStoppedProcess: a stopped process counts as alive. Only its silence shows that it is frozen.
func TestStoppedProcess(t *testing.T) {
	cmd := child(t, "wait")
	p := &Processes{}
	c := p.Identify(cmd.Process.Pid)
	if err := cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	expect.Soon(t, "it stopped", func() bool { return state(c.PID) == "T" })
	want(t, "stopped", liveness.Alive, p.Alive(c))

	run := owned(1, 0)
	run.Process, run.HeartbeatTimeout = c, 40*time.Millisecond
	m := newMemory(run)
	w := &Monitor{Store: m, Processes: p, Interval: 5 * time.Millisecond}
	start(t, w)
	expect.Soon(t, "it timed out", func() bool { return m.status(1) == ckpt.RunTimedOut })
	if reason := m.reasons[1]; !strings.HasSuffix(reason, "is there and may be frozen") {
		t.Error(reason)
	}
	cmd.Process.Kill()
	is(t, "a zombie", p, c, liveness.Dead)
	want(t, "state", "Z", state(c.PID))
	if p.Identify(c.PID) != c {
		t.Error("the zombie is another one")
	}
}

// TestKilledProcess: the monitor notices within one round that an agent died.
func TestKilledProcess(t *testing.T) {
	cmd := child(t, "wait")
	p := &Processes{}
	run := owned(1, 0)
	run.Process = p.Identify(cmd.Process.Pid)
	m := newMemory(run)
	start(t, &Monitor{Store: m, Processes: p, Interval: 5 * time.Millisecond})
	expect.Soon(t, "it looked a few times", func() bool { m.mu.Lock(); defer m.mu.Unlock(); return m.reads > 5 })
	want(t, "before", ckpt.RunStatus(""), m.status(1))
	cmd.Process.Kill()
	expect.Soon(t, "it was interrupted", func() bool { return m.status(1) == ckpt.RunInterrupted })
}

func state(pid int) string {
	line, _ := readStat(procfs, pid)
	_, rest, _ := strings.Cut(string(line), ") ")
	state, _, _ := strings.Cut(rest, " ")
	return state
}

// TestProcessWithoutItsFirstThread: the first thread of a process has ended and others continue. In /proc it looks
// like a zombie.
func TestProcessWithoutItsFirstThread(t *testing.T) {
	cmd := child(t, "headless")
	p := &Processes{}
	c := p.Identify(cmd.Process.Pid)
	expect.Soon(t, "its first thread ended", func() bool { return state(c.PID) == "Z" })
	want(t, "without its first thread", liveness.Alive, p.Alive(c))
	cmd.Process.Kill()
	is(t, "killed", p, c, liveness.Dead)
}

func headless() {
	go func() {
		ready()
		io.Copy(io.Discard, os.Stdin)
		syscall.Exit(0)
	}()
	time.Sleep(10 * time.Millisecond)
	syscall.Syscall(unix.SYS_EXIT, 0, 0, 0) // ends only this thread
}

// inside runs a story as root of new namespaces for processes and mounts. If it finds a fault, it prints the fault
// instead of "ready".
func inside(t *testing.T, role string) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("only root can make a process namespace")
	}
	child(t, role, func(cmd *exec.Cmd) {
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWPID | unix.CLONE_NEWNS}
	})
}

// container starts a shell that is process 1 of its own namespace, and a child of it. It returns both
// numbers as this process sees them.
func container(t *testing.T) (shell *exec.Cmd, inner int) {
	t.Helper()
	shell = exec.Command("sh", "-c", "sleep 60 & echo $$ $!; wait")
	shell.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWPID, Pdeathsig: syscall.SIGKILL}
	if os.Getuid() != 0 {
		shell.SysProcAttr.Cloneflags |= unix.CLONE_NEWUSER
	}
	out, err := shell.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := shell.Start(); err != nil {
		t.Skipf("no process namespace can be made here: %v", err)
	}
	t.Cleanup(func() { _ = shell.Process.Kill(); _ = shell.Wait() })
	said := make([]byte, 20)
	n, err := out.Read(said)
	if err != nil {
		t.Fatal(err)
	}
	if string(said[:n]) != "1 2\n" {
		t.Fatalf("the numbers in the namespace are %q", said[:n])
	}
	outer := shell.Process.Pid
	children, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", outer, outer))
	if err != nil {
		t.Skipf("this kernel does not list children: %v", err)
	}
	inner, err = strconv.Atoi(strings.TrimSpace(string(children)))
	if err != nil {
		t.Fatal(err)
	}
	return shell, inner
}

// TestNamedInAContainer: the numbers that a caller names are of the caller's process namespace. The first processes of
// two containers are two, and neither is the first process of the host.
func TestNamedInAContainer(t *testing.T) {
	p := &Processes{}
	one, inner := container(t)
	other, _ := container(t)
	first, second := p.Named(one.Process.Pid, 1), p.Named(other.Process.Pid, 1)
	want(t, "the caller itself", p.Identify(one.Process.Pid), first)
	want(t, "another container's", p.Identify(other.Process.Pid), second)
	want(t, "the parent of the caller", first, p.Named(inner, 1))
	want(t, "a child that names itself", p.Identify(inner), p.Named(inner, 2))
	want(t, "a child of the caller", p.Identify(inner), p.Named(one.Process.Pid, 2))
	want(t, "a process that is not found", liveness.Process{}, p.Named(one.Process.Pid, 3))
	want(t, "a child, as its parent sees it", 2, p.Here(one.Process.Pid, inner))
	want(t, "a parent, as its child sees it", 1, p.Here(inner, one.Process.Pid))
	want(t, "another container's process", 0, p.Here(one.Process.Pid, other.Process.Pid))
	want(t, "what this process sees", 0, p.Here(os.Getpid(), inner))
	want(t, "a caller that is not seen", liveness.Process{}, p.Named(0, 1))
	want(t, "a caller outside", p.Identify(1), p.Named(os.Getpid(), 1))
	_ = one.Process.Kill()
	is(t, "the first container", p, first, liveness.Dead)
	want(t, "the second container", liveness.Alive, p.Alive(second))
}

func TestReusedNumber(t *testing.T)  { inside(t, "reuse") }
func TestHiddenProcess(t *testing.T) { inside(t, "hidepid") }

// tell ends a story and prints its result.
func tell(err error) {
	if err != nil {
		fmt.Println(err)
		syscall.Exit(1)
	}
	ready()
}

// ownProc mounts a separate /proc in the namespace.
func ownProc(options string) error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return err
	}
	return unix.Mount("proc", "/proc", "proc", 0, options)
}

func sleeper() (*exec.Cmd, error) {
	cmd := exec.Command("sleep", "60")
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return cmd, cmd.Start()
}

// reuse gives the pid of a process to a second one and looks for the first.
func reuse() { tell(reused()) }

func reused() error {
	runtime.LockOSThread() // its end would kill the sleepers
	if err := ownProc(""); err != nil {
		return err
	}
	p := &Processes{}
	for range 100 {
		first, err := sleeper()
		if err != nil {
			return err
		}
		owner := p.Identify(first.Process.Pid)
		if is := p.Alive(owner); is != liveness.Alive {
			return fmt.Errorf("%+v is %d", owner, is)
		}
		first.Process.Kill()
		first.Wait()
		time.Sleep(20 * time.Millisecond) // start times are counted in hundredths of a second
		if err := os.WriteFile("/proc/sys/kernel/ns_last_pid", []byte(strconv.Itoa(owner.PID-1)), 0); err != nil {
			return err
		}
		second, err := sleeper()
		if err != nil {
			return err
		}
		reused, old, now := second.Process.Pid == owner.PID, p.Alive(owner), p.Alive(p.Identify(second.Process.Pid))
		second.Process.Kill()
		second.Wait()
		if old != liveness.Dead || now != liveness.Alive {
			return fmt.Errorf("%+v is %d, who has its number is %d", owner, old, now)
		}
		if reused {
			return nil
		}
	}
	return fmt.Errorf("no number was reused in 100 tries")
}

// hidepid checks another user's process that /proc hides.
func hidepid() { tell(hiddenProcess()) }

func hiddenProcess() error {
	runtime.LockOSThread()
	if err := ownProc("hidepid=2"); err != nil {
		return err
	}
	p := &Processes{}
	other, err := sleeper()
	if err != nil {
		return err
	}
	seen := p.Identify(other.Process.Pid)
	if err := errors.Join(syscall.Setgroups(nil), syscall.Setgid(65534), syscall.Setuid(65534)); err != nil {
		return err
	}
	if _, err := os.Stat(filepath.Join("/proc", strconv.Itoa(seen.PID))); err == nil {
		return fmt.Errorf("the process is not hidden")
	}
	if is := p.Alive(seen); is != liveness.Unknown {
		return fmt.Errorf("the hidden process is %d", is)
	}
	if id := p.Identify(seen.PID); id.Start != "" || id.Boot != seen.Boot {
		return fmt.Errorf("the hidden process is %+v", id)
	}
	if is := p.Alive(liveness.Process{PID: 30000, Start: "1", Boot: seen.Boot}); is != liveness.Dead {
		return fmt.Errorf("a process that is not there is %d", is)
	}
	return nil
}

func TestParseStat(t *testing.T) {
	line := func(name, state, threads, start string) string {
		return "7 (" + name + ") " + state + " 1 7 7 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 " + threads + " 0 " + start + " 99 1\n"
	}
	for _, c := range []struct {
		line  string
		start string
		ended bool
		ok    bool
	}{
		{line("sleep", "S", "1", "123"), "123", false, true},
		{line("a) R (b c", "S", "1", "123"), "123", false, true},
		{line(")))", "T", "1", "123"), "123", false, true},
		{line("sleep", "Z", "1", "123"), "123", true, true},
		{line("sleep", "Z", "0", "123"), "123", true, true},
		{line("python", "Z", "3", "123"), "123", false, true},
		{line("python", "Z", "10", "123"), "123", false, true},
		{line("sleep", "X", "1", "123"), "123", true, true},
		{line("sleep", "S", "1", "-5"), "", false, false},
		{"7 (sleep) S 1 7", "", false, false},
		{"7 (sleep", "", false, false},
		{"", "", false, false},
	} {
		start, ended, ok := parseStat([]byte(c.line))
		if start != c.start || ended != c.ended || ok != c.ok {
			t.Errorf("%q: %q %v %v", c.line, start, ended, ok)
		}
	}
}

func TestLookWithoutData(t *testing.T) {
	empty := t.TempDir()
	me := os.Getpid()
	if start, s := lookIn(empty, me); start != "" || s != hidden {
		t.Errorf("nothing in /proc: %q, %d", start, s)
	}
	if boot := readBootOf(empty); boot != "" {
		t.Errorf("boot %q", boot)
	}
	dir := filepath.Join(empty, strconv.Itoa(me))
	if err := os.MkdirAll(filepath.Join(dir, "stat"), 0o755); err != nil { // reading a folder is an error
		t.Fatal(err)
	}
	if _, s := lookIn(empty, me); s != hidden {
		t.Errorf("unreadable: %d", s)
	}
	os.Remove(filepath.Join(dir, "stat"))
	if err := os.WriteFile(filepath.Join(dir, "stat"), []byte("rubbish"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, s := lookIn(empty, me); s != hidden {
		t.Errorf("rubbish: %d", s)
	}
}

// TestLookWithoutDescriptors: without a free file descriptor no process may be taken for dead.
func TestLookWithoutDescriptors(t *testing.T) {
	p := &Processes{}
	me := p.Identify(os.Getpid())
	var before unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &before); err != nil {
		t.Fatal(err)
	}
	low := before
	low.Cur = 0
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &low); err != nil {
		t.Fatal(err)
	}
	is := p.Alive(me)
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &before); err != nil {
		t.Fatal(err)
	}
	want(t, "without descriptors", liveness.Unknown, is)
}

// TestOwnerOfAProcess: a process has the owner that the kernel would report for its connection.
func TestOwnerOfAProcess(t *testing.T) {
	var p Processes
	if got, want := p.Owner(os.Getpid()), "uid:"+strconv.Itoa(os.Geteuid()); got != want {
		t.Errorf("this process belongs to %q, want %q", got, want)
	}
	if got := p.Owner(1); got != "uid:0" && got != "" {
		t.Errorf("the first process belongs to %q", got)
	}
	for _, pid := range []int{0, -1, 1 << 31} {
		if got := p.Owner(pid); got != "" {
			t.Errorf("%d belongs to %q", pid, got)
		}
	}
}
