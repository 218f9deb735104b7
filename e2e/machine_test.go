//go:build e2e && linux

// Package e2e installs the packages on machines that are booted for the tests,
// and checks the result. It takes minutes, needs root and once the network, and
// says what is missing: `make e2e-systemd`, `make e2e-windows`.
package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/ckptsidecar/ckptsidecar/internal/ipc/client"
)

// cache returns the folder where results that take long to make are kept
// between runs.
func cache(t *testing.T) string {
	t.Helper()
	dir := os.Getenv("CKPTSIDECAR_E2E_CACHE")
	if dir == "" {
		dir = filepath.Join(os.TempDir(), "ckptsidecar-e2e")
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

// need skips the test if a program is missing, or the right to use it.
func need(t *testing.T, programs ...string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("skipped: only root can boot a machine")
	}
	for _, p := range programs {
		if _, err := exec.LookPath(p); err != nil {
			t.Skipf("skipped: %s is not installed", p)
		}
	}
}

// debian returns a root folder with the packages, which is made once. It is
// never changed: machines mount a volatile layer over it.
func debian(t *testing.T, name, suite string, args ...string) string {
	t.Helper()
	root := filepath.Join(cache(t), name)
	if _, err := os.Stat(root); err == nil {
		return root
	}
	part := root + ".part"
	_ = os.RemoveAll(part)
	t.Logf("making %s, which takes a while the first time", root)
	out, err := exec.Command("mmdebstrap", append(args, suite, part)...).CombinedOutput()
	if err != nil {
		t.Skipf("skipped: Debian could not be fetched: %v\n%s", err, tail(string(out), 2000))
	}
	if err := os.Rename(part, root); err != nil {
		t.Fatal(err)
	}
	return root
}

// machine is a booted system.
type machine struct {
	t      *testing.T
	leader int // its process 1, with its pid outside
	shared string
	trial  *trial
}

// boot boots a throw-away machine that sees the shared folder at /mnt.
func boot(t *testing.T, root, shared string) *machine {
	t.Helper()
	m, _ := bootAs(t, root, shared, "overlay")
	return m
}

// bootAs boots a machine, and returns how to power it off before the test ends.
func bootAs(t *testing.T, root, shared, volatile string) (m *machine, off func()) {
	t.Helper()
	name := fmt.Sprintf("ckpt%d", os.Getpid())
	console, err := os.Create(filepath.Join(t.TempDir(), "console"))
	if err != nil {
		t.Fatal(err)
	}
	defer console.Close()
	cmd := exec.Command("unshare", "--mount", "--propagation", "private", "--", "./boot.sh", root, name, shared, volatile)
	cmd.Stdout, cmd.Stderr = console, console
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Skipf("skipped: a machine cannot be booted here: %v", err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	m = &machine{t: t, shared: shared, trial: new(trial)}
	off = sync.OnceFunc(func() { m.powerOff(cmd, ended) })
	t.Cleanup(off)
	for end := time.Now().Add(60 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		select {
		case err := <-ended:
			text, _ := os.ReadFile(console.Name())
			ended <- err
			t.Skipf("skipped: a machine cannot be booted here: %v\n%s", err, tail(string(text), 2000))
		default:
		}
		if m.leader = child(cmd.Process.Pid); m.leader != 0 {
			if out, _ := m.try("systemctl", "is-system-running"); strings.Contains(out, "running") || strings.Contains(out, "degraded") {
				return m, off
			}
		}
		if time.Now().After(end) {
			text, _ := os.ReadFile(console.Name())
			t.Fatalf("the machine does not come up:\n%s", tail(string(text), 3000))
		}
	}
}

// child returns the first child of a process, or 0 for none.
func child(pid int) int {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	fields := strings.Fields(string(text))
	if err != nil || len(fields) == 0 {
		return 0
	}
	n, _ := strconv.Atoi(fields[0])
	return n
}

const powerOffSignal = syscall.Signal(34 + 4) // SIGRTMIN+4

func (m *machine) powerOff(cmd *exec.Cmd, ended chan error) {
	if m.leader != 0 {
		_ = syscall.Kill(m.leader, powerOffSignal)
	}
	select {
	case <-ended:
	case <-time.After(30 * time.Second):
		_ = cmd.Process.Kill()
	}
}

// command returns a command that runs inside the machine.
func (m *machine) command(args ...string) *exec.Cmd {
	all := []string{"-t", strconv.Itoa(m.leader), "-a", "env", "-i", "PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", "LC_ALL=C.UTF-8", "DEBIAN_FRONTEND=noninteractive"}
	return exec.Command("nsenter", append(all, args...)...)
}

// try runs a command and returns all of its output.
func (m *machine) try(args ...string) (string, error) {
	var out bytes.Buffer
	cmd := m.command(args...)
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	return strings.TrimSpace(out.String()), err
}

// run is try, but a failure fails the test.
func (m *machine) run(args ...string) string {
	m.t.Helper()
	out, err := m.try(args...)
	if err != nil {
		m.t.Fatalf("%s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return out
}

// sh runs a line of shell.
func (m *machine) sh(line string) string {
	m.t.Helper()
	return m.run("sh", "-c", line)
}

// as runs a line of shell as a user of the machine.
func (m *machine) as(user, line string) (string, error) {
	return m.try("runuser", "-u", user, "--", "env", "-C", "/home/"+user, "HOME=/home/"+user, "sh", "-c", line)
}

// sqlite returns the command line of an sqlite3 that knows strict tables (3.37). The one of Debian 11 does not: the machine then uses
// the host's with all of its libraries.
func (m *machine) sqlite(t *testing.T) string {
	t.Helper()
	strict := func(command string) bool {
		_, err := m.try("sh", "-c", command+` :memory: 'CREATE TABLE t (n INTEGER) STRICT'`)
		return err == nil
	}
	if strict("sqlite3") {
		return "sqlite3"
	}
	out, err := exec.Command("sh", "-c", `cd "$1" && mkdir -p sqlite && p=$(command -v sqlite3) && cp -L "$p" $(ldd "$p" | grep -o '/[^ ]*') sqlite && chmod -R a+rX sqlite`, "sh", m.shared).CombinedOutput()
	const command = "/mnt/sqlite/ld-linux-*.so.* --library-path /mnt/sqlite /mnt/sqlite/sqlite3"
	if err != nil || !strict(command) {
		t.Skipf("skipped: neither the machine nor this host has an sqlite3 with strict tables: %v: %s", err, out)
	}
	return command
}

// exitCode returns the exit code from an error of try.
func exitCode(err error) int {
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return exit.ExitCode()
	}
	return 0
}

// client talks to the machine's daemon from outside, as root. It retries as
// long as our clients do.
func (m *machine) client() *client.Client {
	c := &client.Client{Socket: fmt.Sprintf("/proc/%d/root/run/ckptsidecar/ckptsidecar.sock", m.leader), Retry: 90 * time.Second}
	m.t.Cleanup(c.Close)
	return c
}

// show returns a property of the service.
func (m *machine) show(property string) string {
	m.t.Helper()
	return m.run("systemctl", "show", "ckptsidecar.service", "--value", "--property="+property)
}

func (m *machine) pid() int {
	n, _ := strconv.Atoi(m.show("MainPID"))
	return n
}

// kill sends a signal to the daemon if it runs.
func (m *machine) kill(signal string, pid int) {
	m.t.Helper()
	if pid > 1 {
		m.sh(fmt.Sprintf("kill -%s %d", signal, pid)) // kill is a command of the shell
	}
}

// until waits until a condition is true.
func (m *machine) until(most time.Duration, what string, is func() bool) time.Duration {
	m.t.Helper()
	began := time.Now()
	for !is() {
		if time.Since(began) > most {
			journal, _ := m.try("journalctl", "-u", "ckptsidecar.service", "-n", "40", "--no-pager")
			m.t.Fatalf("waited %v in vain for %s\n%s", most, what, journal)
		}
		time.Sleep(100 * time.Millisecond)
	}
	return time.Since(began).Round(100 * time.Millisecond)
}

func (m *machine) answers() bool {
	c := &client.Client{Socket: fmt.Sprintf("/proc/%d/root/run/ckptsidecar/ckptsidecar.sock", m.leader)}
	defer c.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	return c.Ready(ctx) == nil
}

func tail(s string, most int) string {
	if len(s) <= most {
		return s
	}
	return "… " + s[len(s)-most:]
}
