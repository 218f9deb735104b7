package host

import (
	"bufio"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// started returns a shell with a child that counts on its standard output.
func started(t *testing.T) (*Process, *bufio.Scanner) {
	t.Helper()
	p, err := Start(Spec{Name: "counter", Path: "/bin/sh", Pipe: true, Args: []string{"-c",
		`(while :; do echo tick; sleep 0.01; done) & cat >/dev/null; kill $!`}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Kill)
	lines := bufio.NewScanner(p.Out)
	if !lines.Scan() {
		t.Fatal(p.Failure())
	}
	return p, lines
}

func state(pid int) string {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, rest, _ := strings.Cut(string(text), ") ")
	return strings.SplitN(rest+" ", " ", 2)[0]
}

func waitFor(t *testing.T, what string, is func() bool) {
	t.Helper()
	for range 500 {
		if is() {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatal(what + " did not happen in 5 seconds")
}

func TestPauseStopsChildrenTooUntilResume(t *testing.T) {
	p, lines := started(t)
	if err := p.Pause(); err != nil {
		t.Fatal(err)
	}
	pids, err := p.Tree()
	if err != nil || len(pids) < 3 {
		t.Fatalf("the tree is %v, error %v", pids, err)
	}
	for _, pid := range pids[:3] {
		waitFor(t, "the stop", func() bool { s := state(pid); return s == "T" || s == "" })
	}
	if err := p.Resume(); err != nil {
		t.Fatal(err)
	}
	for range 5 {
		if !lines.Scan() {
			t.Fatal("it does not go on: ", p.Failure())
		}
	}
}

func TestStopEndsAPausedProcess(t *testing.T) {
	p, _ := started(t)
	if err := p.Pause(); err != nil {
		t.Fatal(err)
	}
	pids, _ := p.Tree()
	if err := p.Stop(nil, 5*time.Second); err != nil {
		t.Error(err)
	}
	for _, pid := range pids {
		waitFor(t, fmt.Sprintf("the end of %d", pid), func() bool { s := state(pid); return s == "" || s == "Z" })
	}
}

func TestStopKillsWhatDoesNotListen(t *testing.T) {
	p, err := Start(Spec{Name: "deaf", Path: "/bin/sh", Args: []string{"-c", `trap "" TERM; while :; do sleep 1; done`}})
	if err != nil {
		t.Fatal(err)
	}
	time.Sleep(50 * time.Millisecond) // until the trap is set
	if err := p.Stop(syscall.SIGTERM, 200*time.Millisecond); err == nil || !strings.Contains(err.Error(), "killed") {
		t.Errorf("error %v", err)
	}
	if pids, _ := p.Tree(); len(pids) != 0 {
		t.Errorf("of an ended process the tree is %v", pids)
	}
}

func TestRunSaysWhatWasSaidAndEndsWithItsContext(t *testing.T) {
	err := Run(t.Context(), Spec{Name: "sh", Path: "/bin/sh", Args: []string{"-c", "echo no such disk >&2; exit 3"}})
	if err == nil || !strings.Contains(err.Error(), "no such disk") {
		t.Errorf("error %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := Run(ctx, Spec{Name: "sh", Path: "/bin/sh", Args: []string{"-c", "sleep 60 & sleep 60"}}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error %v", err)
	}
}

func TestCPUCountsChildren(t *testing.T) {
	p, err := Start(Spec{Name: "burner", Path: "/bin/sh", Args: []string{"-c", `(i=0; while :; do i=$((i+1)); done) & wait`}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Kill)
	waitFor(t, "30 ms of work", func() bool {
		used, err := p.CPU()
		return err == nil && used >= 30*time.Millisecond
	})
	if err := p.Pause(); err != nil {
		t.Fatal(err)
	}
	time.Sleep(20 * time.Millisecond) // until the signal has arrived
	before, _ := p.CPU()
	time.Sleep(100 * time.Millisecond)
	if after, _ := p.CPU(); after != before {
		t.Errorf("while it was stopped it used %s", after-before)
	}
}

// TestChildrenDieWithTheirParent: a child must not outlive a parent that is
// killed. The parent here is this test binary, started again.
func TestChildrenDieWithTheirParent(t *testing.T) {
	if os.Getenv("BENCH_PARENT") != "" {
		p, err := Start(Spec{Name: "sleep", Path: "/bin/sleep", Args: []string{"600"}})
		if err != nil {
			t.Fatal(err)
		}
		fmt.Println("child", p.PID())
		select {}
	}
	parent := exec.Command(os.Args[0], "-test.run", "TestChildrenDieWithTheirParent")
	parent.Env = append(os.Environ(), "BENCH_PARENT=1")
	out, err := parent.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	var child int
	if _, err := fmt.Fscanf(out, "child %d\n", &child); err != nil {
		t.Fatal(err)
	}
	_ = parent.Process.Kill()
	_ = parent.Wait()
	waitFor(t, "the end of the child", func() bool { s := state(child); return s == "" || s == "Z" })
}

func TestMemoryIsNoDisk(t *testing.T) {
	if _, err := os.Stat("/dev/shm"); err != nil {
		t.Skip("there is no /dev/shm")
	}
	if _, err := OpenDisk("/dev/shm"); err == nil {
		t.Error("a folder in memory was taken for one on a disk")
	}
}

func TestDiskUseCountsBlocks(t *testing.T) {
	dir := t.TempDir()
	whole, err := os.Create(filepath.Join(dir, "whole"))
	if err != nil {
		t.Fatal(err)
	}
	defer whole.Close()
	noise := make([]byte, 100_000) // some disks compress
	_, _ = rand.Read(noise)
	_, err = whole.Write(noise)
	if err := errors.Join(err, whole.Sync()); err != nil {
		t.Fatal(err)
	}
	f, err := os.Create(filepath.Join(dir, "sparse"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.Truncate(1 << 30); err != nil {
		t.Fatal(err)
	}
	use, err := DiskUse(dir)
	if without, err := DiskUse(dir, "whole"); err != nil || without >= use {
		t.Errorf("without a file %d bytes of %d, error %v", without, use, err)
	}
	if err != nil || use < 100_000 || use > 1<<20 {
		t.Errorf("%d bytes, error %v", use, err)
	}
}
