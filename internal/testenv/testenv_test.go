package testenv

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// outside are the caller's variables, as they were before TestMain.
var outside = map[string]string{}

func TestMain(m *testing.M) {
	for _, name := range []string{"HOME", "XDG_RUNTIME_DIR", "TMPDIR", "CKPTSIDECAR_SOCKET"} {
		outside[name] = os.Getenv(name)
	}
	_ = os.Setenv("CKPTSIDECAR_DB", "the caller's")
	_ = os.Setenv("CKPTSIDECAR_MEASURE", "1")
	if os.Getenv("TESTENV_LEAVE") != "" {
		os.Exit(Run(func() int {
			_, _ = os.MkdirTemp("", "left")
			return 0
		}))
	}
	Main(m)
}

func TestNothingOfTheCallerIsReached(t *testing.T) {
	home := os.Getenv(Marker)
	if home == "" {
		t.Fatal("the process has no home of its own")
	}
	for _, name := range []string{"HOME", "XDG_RUNTIME_DIR", "XDG_STATE_HOME", "XDG_CONFIG_HOME", "TMPDIR", "CKPTSIDECAR_SOCKET"} {
		value := os.Getenv(name)
		if !strings.HasPrefix(value, home+string(filepath.Separator)) {
			t.Errorf("%s is %q, which is outside of %s", name, value, home)
		}
		if value == outside[name] {
			t.Errorf("%s is still the caller's: %q", name, value)
		}
	}
	if value, set := os.LookupEnv("CKPTSIDECAR_DB"); set {
		t.Errorf("CKPTSIDECAR_DB is still %q", value)
	}
	if os.Getenv("CKPTSIDECAR_MEASURE") != "1" {
		t.Error("CKPTSIDECAR_MEASURE, which has tests measure, does not reach them")
	}
	if dir := t.TempDir(); !strings.HasPrefix(dir, home) {
		t.Errorf("temporary folders lie in %s, outside of %s", dir, home)
	}
}

func TestATestBinaryThatATestStartsDoesNotRunTheTestsAgain(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(self).CombinedOutput()
	if err == nil || !strings.Contains(string(out), "was started by a test") {
		t.Errorf("%v: %s", err, out)
	}
}

func TestWhatIsLeftIsReported(t *testing.T) {
	dir := t.TempDir()
	h := &home{dir}
	if err := h.makeFolders(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "t", "forgotten"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	want := []string{"forgotten"}
	if runtime.GOOS == "linux" {
		child := exec.Command("sleep", "600")
		child.Env = append(os.Environ(), Marker+"="+dir)
		if err := child.Start(); err != nil {
			t.Fatal(err)
		}
		defer func() { _ = child.Process.Kill(); _ = child.Wait() }()
		want = append(want, "sleep 600")
	}
	err := h.leave()
	for _, text := range want {
		if err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("%q is not reported: %v", text, err)
		}
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("the home is still there: %v", err)
	}
}

// TestAFuzzTestMayLeaveFiles: the end of a fuzz test stops its workers, which
// then cannot remove their files.
func TestAFuzzTestMayLeaveFiles(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		args []string
		code int
	}{{nil, 1}, {[]string{"-test.fuzz=."}, 0}} {
		child := exec.Command(self, test.args...)
		child.Env = append(Environ(), "TESTENV_LEAVE=1")
		if out, _ := child.CombinedOutput(); child.ProcessState.ExitCode() != test.code {
			t.Errorf("%q ends with %d, want %d: %s", test.args, child.ProcessState.ExitCode(), test.code, out)
		}
	}
}

// A go command's telemetry outlives the command, and would make the home again after it was removed.
func TestGoSendsNoTelemetry(t *testing.T) {
	if _, err := exec.LookPath("go"); err != nil {
		t.Skip("there is no go command")
	}
	out, err := exec.Command("go", "telemetry").CombinedOutput()
	if mode := strings.TrimSpace(string(out)); err != nil || mode != "off" {
		t.Errorf("go telemetry: %s, %v", mode, err)
	}
}

func TestTMPDIRIsObeyed(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	if dir := folderInMemory(); dir != "" {
		t.Errorf("TMPDIR is set, and the home would lie in %s", dir)
	}
}
