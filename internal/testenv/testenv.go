// Package testenv gives a test process a home of its own, so that no test can
// reach the daemon, the settings or the files of the person who runs it.
// Only tests import it. It may import the standard library alone.
package testenv

import (
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// Marker is the variable that names the home of a test process. Every process
// that a test starts inherits it, which is how those left running are found.
const Marker = "CKPTSIDECAR_TEST_HOME"

// kept are variables of ours that a caller sets on purpose for tests.
var kept = map[string]bool{"CKPTSIDECAR_BIN": true, "CKPTSIDECAR_E2E_CACHE": true, "CKPTSIDECAR_OVERLAY": true,
	"CKPTSIDECAR_MEASURE": true, "CKPTSIDECAR_NO_ENGINE": true}

// Main runs the tests of a package in a home of their own and ends the
// process. A package calls it in TestMain, after its child roles.
//
// The home lies in memory where the system has a file system for that, because
// most tests flush files whose durability is not their subject. TMPDIR is
// obeyed where it is set.
func Main(m *testing.M) { os.Exit(Run(m.Run)) }

// Run is Main for a package that has more to do around its tests. It answers
// the exit code, which is 1 where the tests left processes or files behind.
func Run(tests func() int) int { return run(folderInMemory(), tests) }

// RunOnDisk is Run with a home in the usual temporary folder.
func RunOnDisk(tests func() int) int { return run("", tests) }

func run(base string, tests func() int) int {
	if os.Getenv(Marker) != "" && slices.Contains(os.Args, "-test.fuzzworker") {
		return tests() // it is a worker of a fuzz test, and lives in the home of that
	}
	home, err := enter(base)
	if err != nil {
		fmt.Fprintln(os.Stderr, "testenv:", err)
		return 1
	}
	Beside(2 * runtime.GOMAXPROCS(0)) // tests of processes mostly wait
	code := tests()
	err = home.leave()
	if err != nil && code == 0 && !fuzzing() { // what a test that failed leaves is no news
		fmt.Fprintln(os.Stderr, "testenv:", err)
		code = 1
	}
	return code
}

// fuzzing reports whether a fuzz test runs. When its time is over, its workers
// are stopped in the middle of something.
func fuzzing() bool {
	f := flag.Lookup("test.fuzz")
	return f != nil && f.Value.String() != ""
}

// Beside lets n parallel tests run at a time, unless -parallel or an earlier
// call says how many.
func Beside(n int) {
	if !flag.Parsed() {
		flag.Parse()
	}
	said := false
	flag.Visit(func(f *flag.Flag) { said = said || f.Name == "test.parallel" })
	if !said {
		_ = flag.Set("test.parallel", strconv.Itoa(n)) // a number is always taken
	}
}

// OneProcessor lets a package whose tests mostly run SQLite use one processor. SQLite in Go takes one
// lock for each piece of memory. With two processors, a third of their time goes into that lock, and
// the tests end hardly sooner. "go test ./..." runs other packages on the other processors meanwhile.
// The environment variable GOMAXPROCS has the last word. Under the race detector, all processors are used.
func OneProcessor() {
	if os.Getenv("GOMAXPROCS") == "" && !RaceDetector() {
		runtime.GOMAXPROCS(1)
	}
}

// RaceDetector reports whether the test program was built with the race detector.
func RaceDetector() bool {
	info, ok := debug.ReadBuildInfo()
	return ok && slices.ContainsFunc(info.Settings, func(s debug.BuildSetting) bool { return s.Key == "-race" && s.Value == "true" })
}

// Environ is the environment for a test that runs other packages' tests: they
// take a home of their own.
func Environ() []string {
	return slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, Marker+"=") })
}

// home is the folder that a test process lives in. The names inside it are
// short, because the path of a Unix socket has about 100 bytes.
type home struct{ dir string }

func enter(base string) (*home, error) {
	if outer := os.Getenv(Marker); outer != "" {
		return nil, fmt.Errorf("this test binary was started by a test (%s=%s) that took it for another program", Marker, outer)
	}
	toolchain, err := toolchainSettings()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp(base, "t")
	if err != nil && base != "" {
		dir, err = os.MkdirTemp("", "t") // this user may not write there
	}
	if err != nil {
		return nil, err
	}
	h := &home{dir}
	if err := h.makeFolders(); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	for _, variable := range os.Environ() {
		name, _, _ := strings.Cut(variable, "=")
		if strings.HasPrefix(name, "CKPTSIDECAR_") && !kept[name] {
			_ = os.Unsetenv(name)
		}
	}
	for name, value := range h.variables() {
		toolchain[name] = value
	}
	for name, value := range toolchain {
		if err := os.Setenv(name, value); err != nil {
			return nil, errors.Join(err, os.RemoveAll(dir))
		}
	}
	if err := stopTelemetry(); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	return h, nil
}

// stopTelemetry turns Go's telemetry off in the home. Otherwise a go command can start a process that
// outlives it, and that makes the home again after the tests have removed it.
func stopTelemetry() error {
	config, err := os.UserConfigDir()
	if err != nil {
		return err
	}
	dir := filepath.Join(config, "go", "telemetry")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "mode"), []byte("off"), 0o600)
}

// makeFolders lets other users pass through to what a test gives them: some
// tests play a second user.
func (h *home) makeFolders() error {
	for name, mode := range map[string]os.FileMode{"": 0o711, "h": 0o700, "r": 0o700, "t": 0o711} {
		path := filepath.Join(h.dir, name)
		if err := errors.Join(os.MkdirAll(path, mode), os.Chmod(path, mode)); err != nil {
			return err
		}
	}
	return nil
}

// variables are what points a program to its home on any system. The socket
// names a file that is never there, because a client without one would go on
// to the system's daemon.
func (h *home) variables() map[string]string {
	user, temp := filepath.Join(h.dir, "h"), filepath.Join(h.dir, "t")
	return map[string]string{
		Marker:               h.dir,
		"CKPTSIDECAR_SOCKET": filepath.Join(h.dir, "r", "none.sock"),
		"HOME":               user,
		"USERPROFILE":        user,
		"APPDATA":            filepath.Join(user, "roaming"),
		"LOCALAPPDATA":       filepath.Join(user, "local"),
		"ProgramData":        filepath.Join(user, "data"),
		"XDG_RUNTIME_DIR":    filepath.Join(h.dir, "r"),
		"XDG_STATE_HOME":     filepath.Join(user, "state"),
		"XDG_CONFIG_HOME":    filepath.Join(user, "config"),
		"XDG_DATA_HOME":      filepath.Join(user, "share"),
		"XDG_CACHE_HOME":     filepath.Join(user, "cache"),
		"TMPDIR":             temp,
		"TMP":                temp,
		"TEMP":               temp,
	}
}

// toolchainSettings keeps Go's caches where they are: they follow the home.
func toolchainSettings() (map[string]string, error) {
	names := []string{"GOCACHE", "GOMODCACHE", "GOPATH", "GOENV"}
	values := map[string]string{}
	if _, err := exec.LookPath("go"); err != nil {
		return values, nil // a test binary on a machine without Go builds nothing
	}
	out, err := exec.Command("go", append([]string{"env"}, names...)...).Output()
	if err != nil {
		return nil, fmt.Errorf("go env: %w", err)
	}
	for i, line := range strings.Split(strings.TrimRight(string(out), "\r\n"), "\n") {
		if i < len(names) && strings.TrimSpace(line) != "" {
			values[names[i]] = strings.TrimSpace(line)
		}
	}
	return values, nil
}

// leave removes the home, and reports what the tests left in it.
func (h *home) leave() error {
	var problems []error
	for _, process := range processesWith(Marker + "=" + h.dir) {
		problems = append(problems, fmt.Errorf("a test left a process running: %s", process))
	}
	left, err := leftFiles(filepath.Join(h.dir, "t"))
	if err != nil {
		problems = append(problems, err)
	}
	if len(left) > 0 {
		problems = append(problems, fmt.Errorf("tests left files in the temporary folder: %s", strings.Join(left, ", ")))
	}
	return errors.Join(append(problems, os.RemoveAll(h.dir))...)
}

func leftFiles(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var names []string
	for _, entry := range entries {
		// The go command removes its own a little later, and testscript leaves an
		// empty folder where only some of its scripts were asked for.
		name := entry.Name()
		if !strings.HasPrefix(name, "go-build") && !strings.HasPrefix(name, "go-test-script") {
			names = append(names, leftIn(dir, name)...)
		}
	}
	return names, err
}

// leftIn lists a file, or a folder with what is in it.
func leftIn(dir, name string) (list []string) {
	_ = filepath.WalkDir(filepath.Join(dir, name), func(path string, _ fs.DirEntry, _ error) error {
		if rel, err := filepath.Rel(dir, path); err == nil && len(list) < 20 {
			list = append(list, rel)
		}
		return nil
	})
	return list
}
