//go:build unix

package notify

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

func (c Command) once(t *testing.T) error {
	t.Helper()
	if c.Timeout == 0 {
		c.Timeout = ckpt.Duration(time.Minute)
	}
	return c.start(t.Context(), "msg_1", "test", []byte(`{"id":"msg_1"}`))
}

// TestWhatACommandGets: a command gets the notice and a small environment, and nothing of the daemon's.
func TestWhatACommandGets(t *testing.T) {
	t.Setenv("CKPTSIDECAR_CANARY", "canary-of-the-daemon")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "canary-of-the-daemon")
	dir := t.TempDir()
	if err := (Command{Run: []string{"/bin/sh", "-c", `cat > "$1/in"; env > "$1/env"; pwd > "$1/pwd"; echo "$2" > "$1/arg"`, "sh", dir, "$(touch x)"}}).once(t); err != nil {
		t.Fatal(err)
	}
	read := func(name string) string {
		b, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(string(b))
	}
	if got := read("in"); got != `{"id":"msg_1"}` {
		t.Errorf("its input is %q", got)
	}
	if got := read("arg"); got != "$(touch x)" {
		t.Errorf("an argument was read by a shell: %q", got)
	}
	may := []string{"PATH", "HOME", "LANG", "TZ", "TMPDIR", "SystemRoot", "TEMP", "TMP", "CKPTSIDECAR_NOTICE_ID", "CKPTSIDECAR_NOTICE_TYPE",
		"PWD", "OLDPWD", "SHLVL", "_"} // the last ones are the shell's
	for line := range strings.Lines(read("env")) {
		if name, _, _ := strings.Cut(line, "="); !slices.Contains(may, name) {
			t.Errorf("its environment has %s", line)
		}
	}
	if env := read("env"); !strings.Contains(env, "CKPTSIDECAR_NOTICE_ID=msg_1") || !strings.Contains(env, "CKPTSIDECAR_NOTICE_TYPE=test") {
		t.Error(env)
	}
	if got := read("pwd"); got == read("arg") || strings.HasPrefix(got, dir) {
		t.Errorf("it runs in %s", got)
	}
}

// TestHowACommandEnds: only exit code 0 is success, and at the timeout the command is killed with all processes that it started.
func TestHowACommandEnds(t *testing.T) {
	t.Parallel()
	for script, want := range map[string]string{"exit 0": "", "exit 3": "exit status 3", "kill -9 $$": "killed"} {
		err := (Command{Run: []string{"/bin/sh", "-c", script}}).once(t)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v", script, err)
		}
	}
	if err := (Command{Run: []string{"/nowhere/program"}}).once(t); err == nil || !strings.Contains(err.Error(), "cannot be started") {
		t.Error(err)
	}
	file := filepath.Join(t.TempDir(), "pid")
	err := (Command{Run: []string{"/bin/sh", "-c", `sleep 1000 & echo $! > "$1"; wait`, "sh", file}, Timeout: ckpt.Duration(time.Second)}).once(t)
	if err == nil || !strings.Contains(err.Error(), "did not end within 1s") {
		t.Error(err)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	for range 3000 { // not for as long as expect.Soon waits: a planted mistake must not look as if the test hung
		stat, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
		if syscall.Kill(pid, 0) != nil || strings.Contains(string(stat), ") Z ") {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	_ = syscall.Kill(pid, syscall.SIGKILL)
	t.Error("a process of the command is left")
}
