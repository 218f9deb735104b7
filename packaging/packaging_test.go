package packaging

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// root returns a folder with the parts of a machine that systemd-analyze reads:
// our units, the programs that they name, and the targets that every unit
// refers to. A user's units are checked as the system's, because they use the
// same settings.
func root(t *testing.T, user bool) string {
	t.Helper()
	dir := t.TempDir()
	put := func(name, text string, mode os.FileMode) {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
	}
	for _, u := range Units(user) {
		put("etc/systemd/system/"+u.To, File(u.Name), 0o644)
	}
	for _, program := range []string{"ckptsidecar", "sh"} {
		put("usr/bin/"+program, "#!/bin/sh\n", 0o755)
	}
	for _, target := range []string{"sysinit", "basic", "sockets", "shutdown", "paths", "timers", "local-fs", "multi-user", "network", "default"} {
		put("usr/lib/systemd/system/"+target+".target", "[Unit]\nDescription="+target+"\n", 0o644)
	}
	for _, slice := range []string{"-.slice", "system.slice", "-.mount"} {
		put("usr/lib/systemd/system/"+slice, "[Unit]\n", 0o644)
	}
	return dir
}

func analyze(t *testing.T, args ...string) (string, error) {
	t.Helper()
	tool, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("systemd-analyze is not installed")
	}
	out, err := exec.CommandContext(t.Context(), tool, args...).CombinedOutput()
	return string(out), err
}

// TestSystemdSaysNothingAboutTheUnits: systemd-analyze exits with 0 even if it
// does not know a setting, so any output is a complaint.
func TestSystemdSaysNothingAboutTheUnits(t *testing.T) {
	for _, user := range []bool{false, true} {
		dir := root(t, user)
		if out := verify(t, dir); out != "" {
			t.Errorf("user %v: systemd-analyze verify says:\n%s", user, out)
		}
		path := filepath.Join(dir, "etc/systemd/system/ckptsidecar.service")
		if err := os.WriteFile(path, []byte(File(Units(user)[0].Name)+"\n[Service]\nColour=red\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		if out := verify(t, dir); !strings.Contains(out, "Colour") {
			t.Errorf("the check finds nothing where there is something to find: %q", out)
		}
	}
}

func verify(t *testing.T, dir string) string {
	t.Helper()
	out, err := analyze(t, "verify", "--man=no", "--root="+dir, "ckptsidecar.service", "ckptsidecar.socket")
	if err != nil {
		out += err.Error()
	}
	return out
}

// TestHardening: the exposure is 0.5 or better, and the protections with which
// the daemon would not work are off.
func TestHardening(t *testing.T) {
	out, err := analyze(t, "security", "--offline=true", "--threshold=5", "--root="+root(t, false), "ckptsidecar.service")
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	t.Log(regexp.MustCompile(`→ .*`).FindString(out))
	unit := File("systemd/ckptsidecar.service")
	for _, key := range []string{"PrivateUsers", "ProtectProc", "ProcSubset", "DynamicUser", "PrivatePIDs"} {
		if regexp.MustCompile(`(?m)^` + key + `=`).MatchString(unit) {
			t.Errorf("%s= is set: the daemon must tell users apart and see their processes", key)
		}
	}
}

// TestUnitsBoundMemory: both units limit the daemon's memory, and Go has a
// lower limit at which it collects garbage harder.
func TestUnitsBoundMemory(t *testing.T) {
	for _, name := range []string{"systemd/ckptsidecar.service", "systemd/user/ckptsidecar.service"} {
		unit := File(name)
		for _, line := range []string{"\nMemoryMax=3G\n", "\nEnvironment=GOMEMLIMIT=2GiB\n"} {
			if !strings.Contains(unit, line) {
				t.Errorf("%s has no line %q", name, strings.TrimSpace(line))
			}
		}
	}
	if !strings.Contains(File("systemd/ckptsidecar.service"), "\nOOMScoreAdjust=-200\n") {
		t.Error("the system's daemon is not kept longer than agents")
	}
}

// TestBackoffIsForNewSystemdOnly: the drop-in is installed only if systemd
// knows its settings, because older versions would complain at each start.
func TestBackoffIsForNewSystemdOnly(t *testing.T) {
	dir := root(t, false)
	path := filepath.Join(dir, "etc/systemd/system", Backoff.To)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(File(Backoff.Name)), 0o644); err != nil {
		t.Fatal(err)
	}
	version, _ := analyze(t, "--version")
	out := verify(t, dir)
	old := regexp.MustCompile(`^systemd (1\d\d|2[0-4]\d|25[0-3])\b`).MatchString(version)
	if complains := out != ""; complains != old {
		t.Errorf("%s says of the drop-in: %q", strings.SplitN(version, "\n", 2)[0], out)
	}
}

// TestTheSameRulesForBoth: the rules for restarts and the watchdog are the same
// for the system's daemon and a user's own.
func TestTheSameRulesForBoth(t *testing.T) {
	system, user := File("systemd/ckptsidecar.service"), File("systemd/user/ckptsidecar.service")
	for _, key := range []string{
		"Type", "Restart", "RestartSec", "RestartPreventExitStatus", "WatchdogSec", "Environment", "TimeoutStartSec",
		"TimeoutStopSec", "TimeoutAbortSec", "StartLimitIntervalSec", "ExecReload", "LimitCORE", "UMask",
	} {
		line := regexp.MustCompile(`(?m)^` + key + `=.*$`)
		a, b := line.FindAllString(system, -1), line.FindAllString(user, -1)
		for i := range a { // which settings a reload checks is the one difference
			a[i] = strings.Replace(a[i], "config check --system", "config check", 1)
		}
		if len(a) == 0 || !slices.Equal(a, b) {
			t.Errorf("%s: %q for the system, %q for a user", key, a, b)
		}
	}
}

// TestAPurgeKeepsTheData: where nobody can be asked, debconf answers with the default.
func TestAPurgeKeepsTheData(t *testing.T) {
	text, err := os.ReadFile("deb/templates")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(text), "Template: ckptsidecar/purge-data\nType: boolean\nDefault: false\n") {
		t.Errorf("a purge without a terminal removes the checkpoints:\n%s", text)
	}
}

// TestMacOSHasNoService: no file of launchd is shipped, and `service` on macOS is the file that says so.
func TestMacOSHasNoService(t *testing.T) {
	err := filepath.WalkDir(".", func(path string, _ fs.DirEntry, err error) error {
		if strings.Contains(path, "launchd") || strings.HasSuffix(path, ".plist") {
			t.Errorf("%s is for a service of macOS", path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("go", "list", "-f", "{{.GoFiles}}", "../internal/cli/service")
	cmd.Env = append(os.Environ(), "GOOS=darwin")
	if out, err := cmd.Output(); err != nil || !strings.Contains(string(out), "host_other.go") || strings.Contains(string(out), "darwin") {
		t.Errorf("macOS has %s, %v", out, err)
	}
}

// TestDoctorNamesInstalledDocuments: a document that doctor names is in the packages.
func TestDoctorNamesInstalledDocuments(t *testing.T) {
	shipped, err := os.ReadFile("nfpm.yaml")
	if err != nil {
		t.Fatal(err)
	}
	sources, err := filepath.Glob("../internal/cli/doctor/*.go")
	if err != nil {
		t.Fatal(err)
	}
	named := 0
	for _, source := range sources {
		text, err := os.ReadFile(source)
		if err != nil {
			t.Fatal(err)
		}
		for _, document := range regexp.MustCompile(`[A-Z_]+\.md`).FindAllString(string(text), -1) {
			if named++; !strings.Contains(string(shipped), "/usr/share/doc/ckptsidecar/"+document) {
				t.Errorf("%s names %s, which the packages do not have", source, document)
			}
		}
	}
	if named == 0 {
		t.Error("doctor names no document: this test sees nothing")
	}
}
