//go:build e2e && linux

package e2e

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// wine is a session of Wine in its own namespaces.
type wine struct {
	t    *testing.T
	init int // the process that keeps the namespaces
}

const prefix = "/root/p" // the Wine prefix, seen from inside

// startWine makes the namespaces and starts Wine in them.
func startWine(t *testing.T, shared string) *wine {
	t.Helper()
	root := debian(t, "wine", "trixie", "--variant=apt", "--aptopt=Apt::Install-Recommends \"false\"", "--include=wine64,sqlite3")
	cmd := exec.Command("unshare", "--mount", "--pid", "--fork", "--kill-child", "--propagation", "private", "--", "./wine.sh", root, shared)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Start(); err != nil {
		t.Skipf("skipped: %v", err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	w := &wine{t: t}
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		if w.init = child(cmd.Process.Pid); w.init != 0 {
			if text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", w.init)); string(text) == "sleep\n" {
				break
			}
		}
		if time.Now().After(end) {
			t.Skipf("skipped: there is no place for Wine here: %s", said.String())
		}
	}
	w.prefix(filepath.Join(cache(t), "wine-prefix.tar"))
	// There is one session for all commands, because services live in it.
	if out, err := w.unix(time.Minute, "wineserver64", "-p600"); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return w
}

// prefix makes the folders and the registry of Wine. It reuses those of an
// earlier run if they exist, which is ten times as fast.
func (w *wine) prefix(kept string) {
	w.t.Helper()
	inside := fmt.Sprintf("/proc/%d/root/root", w.init)
	if _, err := os.Stat(kept); err == nil {
		if out, err := exec.Command("tar", "-C", inside, "-xf", kept).CombinedOutput(); err != nil {
			w.t.Fatalf("%v: %s", err, out)
		}
		return
	}
	w.t.Log("making the folders of Wine")
	if out, err := w.unix(5*time.Minute, "wine64", "wineboot", "-u"); err != nil {
		w.t.Skipf("skipped: Wine does not start: %v: %s", err, out)
	}
	_, _ = w.unix(time.Minute, "wineserver64", "-w")
	if out, err := exec.Command("sh", "-c", fmt.Sprintf("tar -C %s -cf %s.part p && mv %s.part %s", inside, kept, kept, kept)).CombinedOutput(); err != nil {
		w.t.Logf("the folders of Wine are not kept: %v: %s", err, out)
	}
}

// unix runs a Linux program inside.
func (w *wine) unix(most time.Duration, args ...string) (string, error) {
	return w.fed("", most, args...)
}

func (w *wine) fed(stdin string, most time.Duration, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), most)
	defer cancel()
	all := []string{"-t", strconv.Itoa(w.init), "-m", "-p", "-r", "-w", "env", "-i", "PATH=/usr/lib/wine:/usr/bin:/bin", "HOME=/root",
		"WINEPREFIX=" + prefix, "WINEDEBUG=-all", "WINEDLLOVERRIDES=mscoree,mshtml="}
	cmd := exec.CommandContext(ctx, "nsenter", append(all, args...)...)
	cmd.WaitDelay = time.Second // a service that Wine starts keeps the pipe open
	cmd.Stdin = strings.NewReader(stdin)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	if ctx.Err() != nil {
		err = fmt.Errorf("not done in %v: %w", most, ctx.Err())
	} else if cmd.ProcessState != nil && cmd.ProcessState.Success() {
		err = nil
	}
	text := strings.ReplaceAll(out.String(), "\r", "")
	text = strings.ReplaceAll(text, "error: XDG_RUNTIME_DIR is invalid or not set in the environment.\n", "")
	return strings.TrimSpace(text), err
}

// windows runs a Windows program.
func (w *wine) windows(args ...string) (string, error) {
	return w.unix(time.Minute, append([]string{"wine64"}, args...)...)
}

// run is windows, but a failure fails the test.
func (w *wine) run(args ...string) string {
	w.t.Helper()
	out, err := w.windows(args...)
	if err != nil {
		w.t.Fatalf("%s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return out
}

// file returns the path of a file on the C: drive, seen from outside.
func (w *wine) file(path string) string {
	return fmt.Sprintf("/proc/%d/root%s/drive_c/%s", w.init, prefix, path)
}

// awake makes the one connection that Wine leaves hanging: there the first
// client of a new pipe gets no answer. That is a mistake of Wine, so the tests
// must not report it as ours.
func (w *wine) awake(program string, more ...string) {
	w.t.Helper()
	_, _ = w.unix(3*time.Second, append([]string{"wine64", program, "version", "--json"}, more...)...)
	for range 5 {
		if _, err := w.unix(5*time.Second, append([]string{"wine64", program, "status", "--json"}, more...)...); err == nil {
			return
		}
	}
	w.t.Fatal("the daemon does not answer over the pipe")
}
