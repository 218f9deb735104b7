package packaging

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestContainerPage types the commands of docs/CONTAINERS.md from top to bottom, with podman's own defaults replaced by
// what runs inside another container.
func TestContainerPage(t *testing.T) {
	for _, tool := range []string{"podman", "runc", "conmon", "bash"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("%s is not installed", tool)
		}
	}
	if os.Getuid() != 0 {
		t.Skip("only root runs containers here")
	}
	page, err := os.ReadFile("../docs/CONTAINERS.md")
	if err != nil {
		t.Fatal(err)
	}
	var typed []string
	for _, block := range regexp.MustCompile("(?s)```sh\n(.*?)```").FindAllSubmatch(page, -1) {
		typed = append(typed, string(block[1]))
	}
	if len(typed) != 2 {
		t.Fatalf("the page has %d blocks of commands", len(typed))
	}
	dir, err := os.MkdirTemp("/var/tmp", "containers") // the folder that is mounted must be on a disk that any user may reach
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	env := append(os.Environ(),
		"CONTAINERS_CONF="+write("containers.conf", "[engine]\ncgroup_manager = \"cgroupfs\"\nruntime = \"runc\"\nevents_logger = \"file\"\n"+
			"[containers]\ndefault_ulimits = [\"nofile=1024:1024\", \"nproc=1024:1024\"]\n"),
		"CONTAINERS_STORAGE_CONF="+write("storage.conf", "[storage]\ndriver = \"vfs\"\ngraphroot = \""+dir+"/graph\"\nrunroot = \""+dir+"/run-root\"\n"),
		"CGO_ENABLED=0", "BUILDAH_ISOLATION=chroot")
	t.Cleanup(func() {
		for _, args := range [][]string{{"rm", "-f", "-a"}, {"system", "reset", "-f"}} {
			cmd := exec.Command("podman", args...)
			cmd.Env = env
			_ = cmd.Run()
		}
		_ = os.RemoveAll(dir)
		_ = os.Remove("container/ckptsidecar")
	})
	script := strings.ReplaceAll(strings.Join(typed, ""), "/srv/ckptsidecar", dir+"/srv")
	first := regexp.MustCompile(`(?m)^(podman run .* status)$`) // the daemon has just been started
	if !first.MatchString(script) {
		t.Fatal("the page does not ask for the status")
	}
	script = first.ReplaceAllString(script, "for i in $$(seq 1000); do $1 && break; sleep 0.2; done")
	cmd := exec.Command("bash", "-euo", "pipefail", "-c", script)
	cmd.Dir, cmd.Env = "..", env
	out, err := cmd.CombinedOutput()
	for _, want := range []string{"ready", "left for all users", "saved: number 1 of run main", `{"n":1}`} {
		if err != nil || !strings.Contains(string(out), want) {
			logs := exec.Command("podman", "logs", "ckptsidecar")
			logs.Env = env
			said, _ := logs.CombinedOutput()
			t.Fatalf("%v, and %q is to be in\n%s\nthe daemon: %s", err, want, out, said)
		}
	}
}
