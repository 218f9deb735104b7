package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/ckptsidecar/ckptsidecar/internal/expect"
	"github.com/ckptsidecar/ckptsidecar/internal/osfile"
)

// TestServeInMemoryWithoutAHome: --db alone is enough where the environment names no folder, and the log warns of a
// database in memory.
func TestServeInMemoryWithoutAHome(t *testing.T) {
	t.Parallel()
	if memory, _ := osfile.FileSystem("/dev/shm"); !memory {
		t.Skip("/dev/shm is no file system in memory")
	}
	if _, err := os.Stat(fmt.Sprintf("/run/user/%d", os.Getuid())); err == nil {
		t.Skip("this user has a runtime folder, whose socket is another daemon's")
	}
	folder, err := os.MkdirTemp("/dev/shm", "ck")
	must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(folder) })
	var log syncBuffer
	serve := exec.Command("ckptsidecar", "serve", "--db", filepath.Join(folder, "ckpt.db"))
	serve.Env, serve.Stdout, serve.Stderr = []string{"PATH=" + os.Getenv("PATH")}, &log, &log
	must(t, serve.Start())
	ended := make(chan error, 1)
	go func() { ended <- serve.Wait() }()
	expect.Soon(t, "the daemon is ready, or has ended", func() bool { return len(ended) > 0 || strings.Contains(log.String(), "msg=ready") })
	_ = serve.Process.Signal(syscall.SIGTERM)
	err = <-ended
	for _, want := range []string{"in memory, so a reboot loses every checkpoint", "endpoint=" + folder + "/ckptsidecar.sock"} {
		if err != nil || !strings.Contains(log.String(), want) {
			t.Errorf("%v, and %q is not in %s", err, want, log.String())
		}
	}
}
