//go:build unix

package faulttest

import (
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// These exit codes of serve say why it did not start.
const (
	exitRunning  = 4
	exitOperator = 78
)

// TestSecondDaemon is F21: if two daemons want the same socket or the same
// database, the first one continues undisturbed.
func TestSecondDaemon(t *testing.T) {
	beside(t)
	d := NewDaemon(t)
	ready := d.Start()
	socket := inode(t, d.Socket)
	h, load := NewHistory(), newLoad(t, d, 4)
	load.start(h)
	load.reach(20)
	for name, flags := range map[string][]string{
		"same place": nil, "same socket": {"--db", filepath.Join(d.Dir, "other", "ckpt.db")}, "same database": {"--socket", filepath.Join(d.Dir, "run", "other")},
	} {
		code, took, said := d.refused(flags...)
		for tries := 0; tries < 4 && took > slack(time.Second); tries++ { // on a busy machine the fastest try counts
			_, again, _ := d.refused(flags...)
			took = min(took, again)
		}
		t.Logf("%s: exit code %d in %v: %s", name, code, took.Round(time.Millisecond), said)
		if code != exitRunning || !strings.Contains(said, "already running") || took > slack(time.Second) {
			t.Errorf("%s: exit code %d in %v, not %d within a second: %s", name, code, took, exitRunning, said)
		}
	}
	load.finish()
	if now := inode(t, d.Socket); now != socket {
		t.Errorf("the socket was replaced: inode %d became %d", socket, now)
	}
	if n := h.Sum(); n.Retried+n.Unanswered > 0 || n.Acked == 0 {
		t.Errorf("the clients of the first daemon noticed: %+v", n)
	}
	d.Kill()
	if _, err := os.Lstat(d.Socket); err != nil {
		t.Fatalf("a killed daemon leaves its socket: %v", err)
	}
	again := d.Start()
	t.Logf("ready in %v, and in %v over the stale socket of a killed one", ready.Round(time.Millisecond), again.Round(time.Millisecond))
	h.Check(t, d.Client, load.agents...)
	if _, _ = d.Stop(); exists(d.Socket) {
		t.Error("a daemon that was stopped left its socket")
	}
}

// refused runs a daemon that must not start.
func (d *Daemon) refused(flags ...string) (code int, took time.Duration, said string) {
	d.t.Helper()
	began := time.Now()
	cmd, out := d.Serve(flags...)
	kill := time.AfterFunc(slack(startTime), func() { _ = cmd.Process.Kill() })
	defer kill.Stop()
	_ = cmd.Wait() // the exit code says how it ended
	return cmd.ProcessState.ExitCode(), time.Since(began), withoutHeads(out.String())
}

// withoutHeads removes the log lines with the head of the audit log, which each
// start and stop writes. The rest is what a person has to read.
func withoutHeads(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(slices.DeleteFunc(lines, func(line string) bool { return strings.Contains(line, `msg="audit head"`) }), "\n")
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// TestSquattedSocket: the daemon names whatever is in the way of its socket and
// leaves it alone.
func TestSquattedSocket(t *testing.T) {
	beside(t)
	for name, squat := range map[string]func(t *testing.T, path string){
		"a file":   func(t *testing.T, path string) { must(t, os.WriteFile(path, []byte("precious"), 0o600)) },
		"a folder": func(t *testing.T, path string) { must(t, os.Mkdir(path, 0o700)) },
		"a link to a file": func(t *testing.T, path string) {
			must(t, os.WriteFile(path+".target", []byte("precious"), 0o600))
			must(t, os.Symlink(path+".target", path))
		},
		"a link to nothing":     func(t *testing.T, path string) { must(t, os.Symlink(path+".nothing", path)) },
		"a link to a socket":    func(t *testing.T, path string) { listen(t, path+".live"); must(t, os.Symlink(path+".live", path)) },
		"a FIFO":                func(t *testing.T, path string) { must(t, syscall.Mkfifo(path, 0o600)) },
		"a live socket":         func(t *testing.T, path string) { listen(t, path) },
		"another's live socket": func(t *testing.T, path string) { listen(t, path); chown(t, path) },
		"another's dead socket": func(t *testing.T, path string) { listen(t, path).Close(); chown(t, path) },
	} {
		t.Run(name, func(t *testing.T) { refusedFor(t, NewDaemon(t), squat) })
	}
	t.Run("too long", func(t *testing.T) {
		d := NewDaemon(t)
		d.Socket = filepath.Join(d.Dir, "run", strings.Repeat("s", 120))
		refusedFor(t, d, func(*testing.T, string) {})
	})
	t.Run("everybody's folder", func(t *testing.T) {
		d := NewDaemon(t)
		refusedFor(t, d, func(t *testing.T, path string) { must(t, os.Chmod(filepath.Dir(path), 0o777)) })
	})
}

func refusedFor(t *testing.T, d *Daemon, squat func(*testing.T, string)) {
	t.Helper()
	must(t, os.Mkdir(filepath.Dir(d.Socket), 0o700))
	squat(t, d.Socket)
	before, _ := os.Lstat(d.Socket) // nil if nothing is there
	code, took, said := d.refused()
	t.Logf("exit code %d in %v: %s", code, took.Round(time.Millisecond), said)
	if code != exitOperator && code != exitRunning || strings.Count(said, "\n") > 0 || len(said) < 40 || took > slack(5*time.Second) {
		t.Errorf("not refused with one clear line: exit code %d in %v: %s", code, took, said)
	}
	after, _ := os.Lstat(d.Socket)
	if (before == nil) != (after == nil) || before != nil && !os.SameFile(before, after) {
		t.Errorf("what was in the way is another thing now: %v, %v", before, after)
	}
	if info, err := os.Stat(d.Socket); err != nil || !info.Mode().IsRegular() {
		return
	}
	if text, err := os.ReadFile(d.Socket); err != nil || string(text) != "precious" {
		t.Errorf("what was in the way holds %q now: %v", text, err)
	}
}

func listen(t *testing.T, path string) net.Listener {
	t.Helper()
	l, err := net.Listen("unix", path)
	must(t, err)
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	t.Cleanup(func() { l.Close() })
	return l
}

func chown(t *testing.T, path string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root can give a socket away")
	}
	must(t, os.Lchown(path, uidOne, -1))
}
