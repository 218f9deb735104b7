//go:build e2e && linux

package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// windowsFiles builds the program, and the installers of two versions.
func windowsFiles(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, version := range []string{oldVersion, newVersion} {
		cmd := exec.Command("../packaging/dist.sh", "msi")
		cmd.Env = append(os.Environ(), "VERSION="+version, "OUT="+dir)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	windowsProgram(t, dir)
	return dir
}

// windowsProgram builds the program into a folder.
func windowsProgram(t *testing.T, dir string) {
	t.Helper()
	cmd := exec.Command("go", "build", "-trimpath", "-o", filepath.Join(dir, "ckptsidecar.exe"), "../cmd/ckptsidecar")
	cmd.Env = append(os.Environ(), "GOOS=windows", "GOARCH=amd64", "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

// TestWindows tests the whole life of the service under Wine. docs/WINDOWS.md
// lists what Wine cannot show.
func TestWindows(t *testing.T) {
	need(t, "mmdebstrap", "unshare", "nsenter", "wixl", "msibuild", "faketime")
	dir := windowsFiles(t)
	testPrograms(t, filepath.Join(dir, "tests"))
	w := startWine(t, dir)
	t.Run("service", func(t *testing.T) { here := *w; here.t = t; here.service(t, dir) })
	t.Run("install.cmd", func(t *testing.T) { here := *w; here.t = t; here.installScript(t, dir) })
	t.Run("msi", func(t *testing.T) { here := *w; here.t = t; here.msi(t, dir) })
	t.Run("packages", func(t *testing.T) { here := *w; here.t = t; here.packages(t) })
}

// testedPackages are packages whose tests need neither Go, nor a Unix socket, nor what Wine lacks: links, and
// processes that are gone once they have ended.
var testedPackages = []string{
	"internal/apitest",
	"internal/cli/measure",
	"internal/cli/transfercmd",
	"internal/db/blob",
	"internal/db/files",
	"internal/db/journal",
	"internal/delta",
	"internal/drift",
	"internal/files",
	"internal/files/rewind",
	"internal/fleet/host",
	"internal/ipc/endpoint",
	"internal/ipc/receiver",
	"internal/jsontext",
	"internal/otlp",
	"internal/resume",
	"internal/retention",
	"internal/secrets",
}

// testPrograms builds the tests of these packages for Windows.
func testPrograms(t *testing.T, dir string) {
	t.Helper()
	for _, name := range testedPackages {
		cmd := exec.Command("go", "test", "-trimpath", "-c", "-o", filepath.Join(dir, strings.ReplaceAll(name, "/", "_")+".exe"), "../"+name)
		cmd.Env = append(os.Environ(), "GOOS=windows", "GOARCH=amd64", "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", name, err, out)
		}
	}
	for _, folder := range []string{"api", "docs", "internal"} { // tests read files of the repository
		if err := os.CopyFS(filepath.Join(dir, "source", folder), os.DirFS("../"+folder)); err != nil {
			t.Fatal(err)
		}
	}
}

// packages runs the tests of packages as Windows programs.
func (w *wine) packages(t *testing.T) {
	for _, name := range testedPackages {
		t.Run(name, func(t *testing.T) {
			program := "/mnt/tests/" + strings.ReplaceAll(name, "/", "_") + ".exe"
			out, err := w.unix(20*time.Minute, "env", "-C", "/mnt/tests/source/"+name, "wine64", program, "-test.short", "-test.timeout=15m")
			if err != nil {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}

func (w *wine) put(t *testing.T, from, to string) {
	t.Helper()
	text, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Dir(w.file(to)), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(w.file(to), text, 0o755); err != nil {
		t.Fatal(err)
	}
}

// save saves a state and reads it back, each in a separate process.
func (w *wine) save(t *testing.T, program, agent, state string) {
	t.Helper()
	if out, err := w.fed(state, 30*time.Second, "wine64", program, "save", agent); err != nil {
		t.Fatalf("save: %v: %s", err, out)
	}
	if out, err := w.unix(30*time.Second, "wine64", program, "restore", agent); err != nil || out != state {
		t.Errorf("restored %q, %v", out, err)
	}
}

// checkpoints queries the database with sqlite3 itself.
func (w *wine) checkpoints(t *testing.T) string {
	t.Helper()
	out, err := w.unix(30*time.Second, "sqlite3", "-readonly", prefix+"/drive_c/ProgramData/ckptsidecar/ckpt.db", "SELECT count(*) FROM audit_checkpoints; SELECT count(*) FROM audit_violations")
	if err != nil {
		t.Errorf("sqlite3: %v: %s", err, out)
	}
	return strings.ReplaceAll(out, "\n", " ")
}

func (w *wine) service(t *testing.T, dir string) {
	const program = `C:\ckptsidecar.exe`
	w.put(t, filepath.Join(dir, "ckptsidecar.exe"), "ckptsidecar.exe")
	for round := range 2 {
		t.Log(w.run(program, "service", "install"))
		w.awake(program)
		if round == 0 {
			t.Log(w.run(program, "service", "status"))
			t.Log(w.run(program, "doctor"))
			if out := w.run("reg", "query", `HKLM\SYSTEM\CurrentControlSet\Services\EventLog\Application\ckptsidecar`); !strings.Contains(out, "EventMessageFile") {
				t.Errorf("the event source: %s", out)
			}
		}
		w.save(t, program, "coder", fmt.Sprintf(`{"round":%d}`, round))

		// This is a kill. Unlike Windows, the service manager of Wine does not
		// start the service again.
		pid := regexp.MustCompile(`(?m)^pid +(\d+)`).FindStringSubmatch(w.run(program, "service", "status"))
		if pid == nil {
			t.Fatal("the status has no pid")
		}
		w.run("taskkill", "/F", "/PID", pid[1])
		time.Sleep(4 * time.Second)
		status, _ := w.windows(program, "service", "status")
		t.Logf("4 s after a kill: %s", strings.SplitN(status, "\n", 2)[0])
		w.run(program, "service", "start")
		w.awake(program)
		w.save(t, program, "coder", fmt.Sprintf(`{"after":%d}`, round))

		for _, way := range [][]string{{"net", "stop", "ckptsidecar"}, {program, "service", "stop"}} {
			began := time.Now()
			w.run(way...)
			if took := time.Since(began); took > 10*time.Second {
				t.Errorf("%v took %v", way, took)
			}
			if status, err := w.windows(program, "service", "status"); exitCode(err) != 1 || !strings.Contains(status, "stopped") {
				t.Errorf("after %v: %v: %s", way, err, status)
			}
			w.run(program, "service", "start")
		}
		w.awake(program)
		w.run(program, "service", "restart")
		w.awake(program)
		w.run(program, "verify")
		w.moved(t, program, dir)
		t.Log(w.run(program, "service", "uninstall"))
		if out := w.run(program, "service", "uninstall"); out != "not installed" {
			t.Errorf("uninstalled twice: %s", out)
		}
		if status, err := w.windows(program, "service", "status"); exitCode(err) != 3 {
			t.Errorf("after uninstall: %v: %s", err, status)
		}
		if _, err := w.windows("reg", "query", `HKLM\SYSTEM\CurrentControlSet\Services\EventLog\Application\ckptsidecar`); err == nil {
			t.Error("the event source is left")
		}
	}
	if got := w.checkpoints(t); got != "3 0" { // the newest three of four
		t.Errorf("sqlite3 counts checkpoints and violations: %s", got)
	}
}

// moved installs the program from another place while the service runs. From then on, the service must run that one.
func (w *wine) moved(t *testing.T, program, dir string) {
	const other = `C:\other.exe`
	w.put(t, filepath.Join(dir, "ckptsidecar.exe"), "other.exe")
	pid := regexp.MustCompile(`(?m)^pid +(\d+)`)
	before := pid.FindString(w.run(program, "service", "status"))
	t.Log(w.run(other, "service", "install"))
	w.awake(other)
	if status := w.run(other, "service", "status"); before == "" || pid.FindString(status) == before || !strings.Contains(status, other) {
		t.Errorf("installed from another place, the service runs the old program (%s):\n%s", before, status)
	}
	// Wine cannot store the access of the folder, so each installation sets it again there.
	before = pid.FindString(w.run(other, "service", "status"))
	w.run(other, "service", "install")
	if status := w.run(other, "service", "status"); before == "" || pid.FindString(status) != before {
		t.Errorf("installed twice, the service runs anew (%s):\n%s", before, status)
	}
}

func (w *wine) installScript(t *testing.T, dir string) {
	w.put(t, filepath.Join(dir, "ckptsidecar.exe"), "unpacked/ckptsidecar.exe")
	w.put(t, "../packaging/windows/install.cmd", "unpacked/install.cmd")
	const program = `C:\Program Files\ckptsidecar\ckptsidecar.exe`
	for range 2 {
		t.Log(w.run("cmd", "/c", `C:\unpacked\install.cmd`))
		w.awake(program)
		w.save(t, program, "script", `{"by":"script"}`)
		w.run("cmd", "/c", `C:\unpacked\install.cmd`) // again, while the service runs
		w.awake(program)
	}
	t.Log(w.run("cmd", "/c", `C:\unpacked\install.cmd uninstall`))
	if _, err := os.Stat(w.file("Program Files/ckptsidecar")); err == nil {
		t.Error("the folder in Program Files is left")
	}
}

func (w *wine) msi(t *testing.T, dir string) {
	const program = `C:\Program Files\ckptsidecar\ckptsidecar.exe`
	for _, version := range []string{oldVersion, newVersion} {
		w.put(t, filepath.Join(dir, "ckptsidecar-"+version+"-windows-amd64.msi"), version+".msi")
		w.run("msiexec", "/qn", "/i", `C:\`+version+".msi")
		w.awake(program)
		if out := w.run(program, "version"); !strings.HasPrefix(out, "ckptsidecar "+version) {
			t.Errorf("installed is %s", out)
		}
		w.save(t, program, "msi", fmt.Sprintf(`{"version":%q}`, version))
	}
	if out := w.run(program, "list", "msi"); strings.Count(out, "routine") != 2 {
		t.Errorf("after the upgrade: %s", out)
	}
	w.run("msiexec", "/qn", "/x", `C:\`+newVersion+".msi")
	if out, err := w.windows("sc", "query", "ckptsidecar"); err == nil {
		t.Errorf("the service is left: %s", out)
	}
	if _, err := os.Stat(w.file("Program Files/ckptsidecar")); err == nil {
		t.Error("the folder in Program Files is left")
	}
	if got := w.checkpoints(t); !strings.HasSuffix(got, " 0") || got == "0 0" {
		t.Errorf("sqlite3 counts checkpoints and violations: %s", got)
	}
}
