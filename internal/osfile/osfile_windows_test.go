package osfile

import (
	"os"
	"os/exec"
	"testing"
)

// TestAnEndedProcessIsGone: the id of a process that has ended stays in use while another process holds it open.
func TestAnEndedProcessIsGone(t *testing.T) {
	cmd := exec.Command("cmd", "/c", "exit") // it is held open until Wait
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Wait() }()
	_, _ = out.Read(make([]byte, 1)) // nobody writes: it ends
	for !ProcessIsGone(cmd.Process.Pid) {
		// The pipe is closed a moment before the process ends.
	}
	if ProcessIsGone(os.Getpid()) {
		t.Error("this process is taken for gone")
	}
}
