//go:build e2e && linux

package e2e

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// watchdog: the watchdog waits for a disk that takes 5 s per flush, but not for
// a stuck writer or a process that does not run. The test uses a third of the
// shipped time, so a delay that passes here also passes with the shipped
// setting.
func (m *machine) watchdog(t *testing.T) {
	if shipped := m.show("WatchdogUSec"); shipped != "1min" {
		t.Errorf("the watchdog is set to %s", shipped)
	}
	m.sh("mkdir -p /run/systemd/system/ckptsidecar.service.d; printf '[Service]\nWatchdogSec=20s\n' > /run/systemd/system/ckptsidecar.service.d/watchdog.conf; systemctl daemon-reload; systemctl restart ckptsidecar.service")
	m.until(10*time.Second, "the daemon", m.answers)
	t.Run("slow disk", func(t *testing.T) { m.slowDisk(t) })
	t.Run("stuck writer", func(t *testing.T) { m.stuckWriter(t) })
	t.Run("stopped process", func(t *testing.T) { m.stoppedProcess(t) })
	m.sh("rm /run/systemd/system/ckptsidecar.service.d/watchdog.conf; systemctl daemon-reload; systemctl restart ckptsidecar.service")
	m.until(10*time.Second, "the daemon", m.answers)
}

// delayed makes every flush of the daemon take this much longer.
func (m *machine) delayed(t *testing.T, pid int, by time.Duration) (end func()) {
	t.Helper()
	cmd := m.command("strace", "-qq", "-f", "-p", fmt.Sprint(pid), "-o", "/dev/null", "-e", "trace=fsync,fdatasync",
		"-e", fmt.Sprintf("inject=fsync,fdatasync:delay_enter=%d", by.Microseconds()))
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	m.until(10*time.Second, "strace to attach", func() bool {
		out, _ := m.try("grep", "TracerPid", fmt.Sprintf("/proc/%d/status", pid))
		return out != "TracerPid:\t0"
	})
	return func() {
		_ = exec.Command("kill", fmt.Sprint(child(cmd.Process.Pid))).Run()
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
}

func (m *machine) slowDisk(t *testing.T) {
	pid := m.pid()
	end := m.delayed(t, pid, 5*time.Second)
	l := m.load("slow", 2)
	time.Sleep(45 * time.Second)
	end()
	if now := m.pid(); now != pid {
		t.Errorf("a slow disk had the daemon restarted (process %d, now %d)", pid, now)
	}
	l.finish(t)
}

// stuckWriter releases the process after the watchdog has killed it, because a
// traced process cannot be reaped before.
func (m *machine) stuckWriter(t *testing.T) {
	pid, began := m.pid(), time.Now()
	end := m.delayed(t, pid, time.Hour)
	l := m.load("stuck", 2)
	m.until(60*time.Second, "the watchdog", func() bool { return m.show("Result") == "watchdog" })
	t.Logf("the watchdog noticed after %v", time.Since(began).Round(time.Second))
	end()
	took := m.until(60*time.Second, "a new daemon", func() bool { now := m.pid(); return now != 0 && now != pid && m.answers() })
	t.Logf("a new daemon answered %v later", took)
	if out := m.run("journalctl", "-u", "ckptsidecar.service", "--no-pager", "-o", "cat", "_PID="+fmt.Sprint(pid)); !strings.Contains(out, "the writer makes no progress") || !strings.Contains(out, "internal/db/sqlite.(*writer)") {
		t.Errorf("the journal does not say where it stood:\n%s", tail(out, 3000))
	}
	l.finish(t)
}

func (m *machine) stoppedProcess(t *testing.T) {
	pid := m.pid()
	l := m.load("stopped", 2)
	time.Sleep(300 * time.Millisecond)
	m.kill("STOP", pid)
	took := m.until(90*time.Second, "the watchdog", func() bool { now := m.pid(); return now != 0 && now != pid && m.answers() })
	t.Logf("the watchdog brought a new one after %v", took)
	l.finish(t)
}
