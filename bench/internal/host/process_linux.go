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

// births is the one thread that starts processes. The kernel kills a child
// with Pdeathsig when the thread that started it ends, so that thread must live
// as long as this process.
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
	// A group of its own: Ctrl-C is for this process, which stops them in order.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: unix.SIGKILL}
	if user != nil {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: uint32(user.UID), Gid: uint32(user.GID)}
	}
	started := make(chan error)
	births() <- func() { started <- cmd.Start() }
	return <-started
}

// Pause stops the process and its children until Resume, so that it burns
// nothing. It looks again until there are no new ones.
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

// Resume lets it go on.
func (p *Process) Resume() error {
	family, err := p.family()
	signalAll(family, unix.SIGCONT)
	return err
}

// member is one process of a tree. Numbers are used again, so it is known by
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

// look reads what the kernel says of a process.
func look(pid int) (stat, error) {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return stat{}, err
	}
	// The name stands in parentheses and may hold anything. After it come, as
	// proc(5) numbers them from 3, the state, the parent, …
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

// tick is what the kernel counts processor time in, for programs.
const tick = 10 * time.Millisecond

// CPU is the processor time that the processes of the tree have used so far.
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
