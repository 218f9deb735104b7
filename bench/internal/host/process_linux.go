package host

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Check says whether this machine can run the benchmark.
func Check() error { return nil }

// births feeds the one thread that starts processes. The kernel kills a child with Pdeathsig when
// the thread that started it ends, so that thread must live as long as this process.
var births = sync.OnceValue(func() chan func() {
	todo := make(chan func())
	go func() {
		runtime.LockOSThread()
		for do := range todo {
			do()
		}
	}()
	return todo
})

func startChild(cmd *exec.Cmd, user *User) error {
	// The child gets its own process group: Ctrl-C is for this process, which stops the children in
	// order.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: unix.SIGKILL}
	if user != nil {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: uint32(user.UID), Gid: uint32(user.GID)}
	}
	started := make(chan error)
	births() <- func() { started <- cmd.Start() }
	return <-started
}

// Pause stops the process and its children until Resume, so that they use no processor time. It
// repeats until there are no new children.
func (p *Process) Pause() error {
	var stopped []member
	for {
		family, err := p.family()
		if err != nil || slices.Equal(family, stopped) {
			return err
		}
		signalAll(family, unix.SIGSTOP)
		stopped = family
	}
}

// Resume lets the process and its children continue.
func (p *Process) Resume() error {
	family, err := p.family()
	signalAll(family, unix.SIGCONT)
	return err
}

// member is one process of a tree. The kernel reuses process numbers, so a member is identified by
// the time of its birth as well.
type member struct {
	pid  int
	born string
}

func killAll(family []member) {
	for _, m := range family {
		if now, err := look(m.pid); err == nil && now.born == m.born {
			_ = unix.Kill(m.pid, unix.SIGKILL)
		}
	}
}

func signalAll(family []member, signal unix.Signal) {
	for _, m := range family {
		_ = unix.Kill(m.pid, signal)
	}
}

// tree lists a process and its children, parents first.
func tree(root int) ([]member, error) {
	paths, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return nil, err
	}
	children := map[int][]member{}
	var family []member
	for _, path := range paths {
		pid, _ := strconv.Atoi(filepath.Base(path))
		s, err := look(pid)
		switch {
		case err != nil: // it has ended meanwhile
		case pid == root:
			family = append(family, s.member)
		default:
			children[s.parent] = append(children[s.parent], s.member)
		}
	}
	for i := 0; i < len(family); i++ {
		family = append(family, children[family[i].pid]...)
	}
	return family, nil
}

type stat struct {
	member
	parent int
	ticks  int64 // of processor time
}

// look reads what the kernel reports about a process.
func look(pid int) (stat, error) {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return stat{}, err
	}
	// The name is in parentheses and can contain any character. After it come the state, the parent
	// and so on, which proc(5) numbers from 3.
	fields := bytes.Fields(text[bytes.LastIndexByte(text, ')')+1:])
	if len(fields) < 20 {
		return stat{}, fmt.Errorf("/proc/%d/stat has only %d fields", pid, len(fields))
	}
	field := func(n int) string { return string(fields[n-3]) }
	parent, err1 := strconv.Atoi(field(4))
	user, err2 := strconv.ParseInt(field(14), 10, 64)
	system, err3 := strconv.ParseInt(field(15), 10, 64)
	return stat{member{pid, field(22)}, parent, user + system}, errors.Join(err1, err2, err3)
}

// tick is the unit in which the kernel reports processor time to programs.
const tick = 10 * time.Millisecond

// CPU returns the processor time that the processes of the tree have used so far.
func (p *Process) CPU() (time.Duration, error) {
	family, err := p.family()
	var ticks int64
	for _, m := range family {
		if s, err := look(m.pid); err == nil && s.member == m {
			ticks += s.ticks
		}
	}
	return time.Duration(ticks) * tick, err
}
