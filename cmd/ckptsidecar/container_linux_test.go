package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/expect"
)

// inContainer runs a shell script as process 1 of a process namespace of its own. It returns the number of that process
// as this process sees it, what the script said, and how the process is ended.
func (s *supervised) inContainer(script string) (pid int, said string, end func()) {
	s.t.Helper()
	var wrong bytes.Buffer
	box := exec.Command("unshare", "--pid", "--fork", "--mount-proc", "--kill-child", "sh", "-c", script+`; echo "as process $$"; exec sleep 600`)
	box.Env, box.Stderr = s.env, &wrong
	out, err := box.StdoutPipe()
	if err != nil {
		s.t.Fatal(err)
	}
	if err := box.Start(); err != nil {
		s.t.Skipf("unshare is not installed: %v", err)
	}
	end = func() { _ = box.Process.Kill(); _ = box.Wait() }
	s.t.Cleanup(end)
	for text := []byte(nil); ; {
		part := make([]byte, 4096)
		n, err := out.Read(part)
		text = append(text, part[:n]...)
		if bytes.Contains(text, []byte("as process 1\n")) {
			said = string(text)
			break
		}
		if err == io.EOF {
			_ = box.Wait()
			s.t.Skipf("no process namespace can be made here: %s", &wrong)
		}
	}
	children, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", box.Process.Pid, box.Process.Pid))
	if err != nil {
		s.t.Skipf("this kernel does not list children: %v", err)
	}
	pid, err = strconv.Atoi(strings.TrimSpace(string(children)))
	if err != nil {
		s.t.Fatal(err)
	}
	return pid, said, end
}

// TestOwnersInContainers: the first processes of two containers, and the first process of the host, are three
// processes. The daemon notices the end of each, and nothing else ends its run.
func TestOwnersInContainers(t *testing.T) {
	t.Parallel()
	s := newSupervised(t)
	begin := `ckptsidecar run start box --run %s 2>&1`
	run := func(name string) *ckpt.Run {
		r, err := s.client.Run(t.Context(), ckpt.RunRef{Agent: "box", Run: name})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	one, said, endOne := s.inContainer(fmt.Sprintf(begin, "one"))
	if got := run("one").PID; got != one {
		t.Fatalf("the owner is process %d, want %d; the command said %s", got, one, said)
	}
	two, said, endTwo := s.inContainer(fmt.Sprintf(begin, "one") + ";" + fmt.Sprintf(begin, "two"))
	if want := fmt.Sprintf("alive (process %d)", one); !strings.Contains(said, want) {
		t.Errorf("the second container was not told %q, but %s", want, said)
	}
	if got := run("two").PID; got != two {
		t.Errorf("the owner is process %d, want %d", got, two)
	}
	endOne()
	expect.Soon(t, "the end of the first container is noticed", func() bool { return run("one").Status == ckpt.RunInterrupted })
	if status := run("two").Status; status != ckpt.RunStarting {
		t.Errorf("the run of the second container is %s", status)
	}
	endTwo()
	expect.Soon(t, "the end of the second container is noticed", func() bool { return run("two").Status == ckpt.RunInterrupted })
}

// TestExecInAContainer: exec and its command have other numbers in their container than the daemon sees. A command that resumes its
// run itself, or by a process that it has started, keeps the run, and exec does not stop it.
func TestExecInAContainer(t *testing.T) {
	t.Parallel()
	s := newSupervised(t)
	work := `ckptsidecar resume box --run %[1]s --json >/dev/null && grep NSpid /proc/$$/status && sleep 0.5 && ckptsidecar run end box completed --run %[1]s --epoch 2`
	exec := "ckptsidecar exec --agent box --run %[1]s --heartbeat 50ms -- "
	_, said, _ := s.inContainer(fmt.Sprintf("("+exec+"sh -c '"+work+"') 2>&1", "itself") +
		fmt.Sprintf("; ("+exec+`sh -c 'sh -c "$1"; true' x '`+work+"') 2>&1", "below"))
	for _, name := range []string{"itself", "below"} {
		r, err := s.client.Run(t.Context(), ckpt.RunRef{Agent: "box", Run: name})
		if err != nil || r.Status != ckpt.RunCompleted {
			t.Errorf("run %s: %+v, %v; it said\n%s", name, r, err, said)
		}
	}
	_, _, end := s.inContainer("(" + fmt.Sprintf(exec, "long") + "sleep 600 &) >/dev/null 2>&1")
	var r *ckpt.Run
	expect.Soon(t, "the daemon knows the command as the owner", func() bool {
		var err error
		r, err = s.client.Run(t.Context(), ckpt.RunRef{Agent: "box", Run: "long"})
		return err == nil && r.PID != 0
	})
	if name, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", r.PID)); err != nil || strings.TrimSpace(string(name)) == "sh" {
		t.Errorf("the owner is process %d, %q, %v", r.PID, name, err)
	}
	end()
	expect.Soon(t, "its end is noticed", func() bool {
		r, err := s.client.Run(t.Context(), ckpt.RunRef{Agent: "box", Run: "long"})
		return err == nil && r.Status == ckpt.RunInterrupted
	})
}
