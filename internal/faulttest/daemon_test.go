//go:build unix

package faulttest

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/ckptsidecar/ckptsidecar/internal/ipc/client"
)

// startTime is how long a daemon may take until it responds, on a machine that
// does other things too. The product's own promise is less than a second.
const startTime = 10 * time.Second

// checkTime is how much longer a start may take: after a fail-stop the daemon
// first checks the whole file.
func (d *Daemon) checkTime() time.Duration {
	const aSecond = 20 << 20
	return time.Duration(fileSize(d.DB)/aSecond) * time.Second
}

func fileSize(path string) int64 {
	info, err := os.Stat(path)
	if err != nil {
		return 0
	}
	return info.Size()
}

// Daemon is a place for a daemon and the process that serves there. The process
// can be started, ended in every way, and started again.
type Daemon struct {
	Dir, Socket, DB string
	Flags           []string // of serve, without the ones that name the place
	Env             []string // in addition to the few variables that are always set
	Wrap            []string // a command that runs the program, if it needs one
	Program         string   // "" means the one under test

	t   *testing.T
	log *logBuffer

	mu  sync.Mutex
	cmd *exec.Cmd
	end chan struct{} // closed when cmd has ended
}

// NewDaemon chooses a place with a short path. Start starts the daemon.
func NewDaemon(t *testing.T, flags ...string) *Daemon {
	t.Helper()
	dir, err := os.MkdirTemp("", "ft")
	if err != nil {
		t.Fatal(err)
	}
	d := &Daemon{
		Dir: dir, Socket: filepath.Join(dir, "run", "s"), DB: filepath.Join(dir, "data", "ckpt.db"),
		Flags: flags, t: t, log: &logBuffer{},
	}
	t.Cleanup(d.cleanUp)
	return d
}

// cleanUp fails the test if the daemon shows something that no test expects of
// a daemon.
func (d *Daemon) cleanUp() {
	if d.Running() {
		d.Kill()
	}
	log := d.log.String()
	for _, sign := range []string{"DATA RACE", "panic", "goroutine 1 ["} {
		if strings.Contains(log, sign) {
			d.t.Errorf("the daemon's log has %q:\n%s", sign, tail(log, 6000))
		}
	}
	if d.t.Failed() {
		d.t.Logf("the end of the daemon's log (%s):\n%s", d.Dir, tail(log, 3000))
	}
	_ = os.RemoveAll(d.Dir)
}

// command is one of the program's commands at this place.
func (d *Daemon) command(args ...string) *exec.Cmd {
	args = slices.Concat(d.Wrap, []string{cmp.Or(d.Program, program)}, args)
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Env = append([]string{"HOME=" + d.Dir, "PATH=" + os.Getenv("PATH"), "GOTRACEBACK=all"}, d.Env...)
	cmd.Dir = d.Dir
	return cmd
}

// Serve starts a daemon that does not have to become ready.
func (d *Daemon) Serve(flags ...string) (*exec.Cmd, *bytes.Buffer) {
	d.t.Helper()
	cmd := d.command(slices.Concat([]string{"serve", "--socket", d.Socket, "--db", d.DB}, d.Flags, flags)...)
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Start(); err != nil {
		d.t.Fatal(err)
	}
	return cmd, &said
}

// Start starts the daemon and waits until it acknowledges saves. It returns how
// long that took.
func (d *Daemon) Start() time.Duration {
	d.t.Helper()
	took, err := d.start()
	if err != nil {
		d.t.Fatal(err)
	}
	return took
}

// start is Start for goroutines other than the test's own.
func (d *Daemon) start() (time.Duration, error) {
	began := time.Now()
	cmd := d.command(slices.Concat([]string{"serve", "--while-stdin", "--socket", d.Socket, "--db", d.DB}, d.Flags)...)
	cmd.Stdout, cmd.Stderr = d.log, d.log
	if _, err := cmd.StdinPipe(); err != nil { // closes with this process: a test that panics leaves no daemon
		return 0, err
	}
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	end := make(chan struct{})
	go func() {
		_ = cmd.Wait() // readers of the state wait for end
		close(end)
	}()
	d.mu.Lock()
	d.cmd, d.end = cmd, end
	d.mu.Unlock()
	err := d.waitReady(began, end)
	return time.Since(began), err
}

func (d *Daemon) waitReady(began time.Time, end <-chan struct{}) error {
	c := &client.Client{Socket: d.Socket}
	defer c.Close()
	most := patiently(startTime + d.checkTime())
	for {
		ctx, cancel := context.WithTimeout(context.Background(), startTime)
		err := c.Ready(ctx)
		cancel()
		if err == nil {
			return nil
		}
		select {
		case <-end:
			return fmt.Errorf("the daemon ended before it was ready (%v):\n%s", d.exitCode(), tail(d.Log(), 3000))
		case <-time.After(5 * time.Millisecond):
		}
		if time.Since(began) > most {
			return fmt.Errorf("the daemon is not ready after %v (%w):\n%s", most, err, tail(d.Log(), 3000))
		}
	}
}

// Signal sends the process a signal.
func (d *Daemon) Signal(sig syscall.Signal) {
	d.t.Helper()
	if err := d.signal(sig); err != nil {
		d.t.Fatal(err)
	}
}

func (d *Daemon) signal(sig syscall.Signal) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.cmd.Process.Signal(sig)
}

// Kill ends the process without a warning and waits until it is gone.
func (d *Daemon) Kill() {
	_ = d.signal(syscall.SIGKILL) // it may have ended by itself; tests check how
	_, _ = d.Wait(startTime)
}

// Stop asks the process to end and returns its exit code and how long it took.
func (d *Daemon) Stop() (code int, took time.Duration) {
	d.t.Helper()
	began := time.Now()
	d.Signal(syscall.SIGTERM)
	code, err := d.Wait(3 * startTime)
	if err != nil {
		d.t.Fatal(err)
	}
	return code, time.Since(began)
}

// Wait waits until the process has ended.
func (d *Daemon) Wait(most time.Duration) (code int, err error) {
	d.mu.Lock()
	end := d.end
	d.mu.Unlock()
	select {
	case <-end:
		return d.exitCode(), nil
	case <-time.After(patiently(most)):
		return 0, errors.New("the daemon did not end in " + most.String())
	}
}

func (d *Daemon) exitCode() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.cmd.ProcessState.ExitCode()
}

// Running reports whether there is a process.
func (d *Daemon) Running() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.end == nil {
		return false
	}
	select {
	case <-d.end:
		return false
	default:
		return true
	}
}

// PID is the number of the process.
func (d *Daemon) PID() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.cmd.Process.Pid
}

// Log returns what all processes at this place have written so far.
func (d *Daemon) Log() string { return d.log.String() }

// Client returns a client with its own connection. It does not retry.
func (d *Daemon) Client() *client.Client {
	c := &client.Client{Socket: d.Socket}
	d.t.Cleanup(c.Close)
	return c
}

// logBuffer is written by the process and read by the test.
type logBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *logBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

func tail(s string, most int) string {
	if len(s) <= most {
		return s
	}
	return "… " + s[len(s)-most:]
}
