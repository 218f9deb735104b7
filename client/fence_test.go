package client_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/client"
)

// speaker is a process that saves and claims on command, never with an epoch.
func speaker(socket string) {
	w := (&client.Client{Socket: socket}).Wire()
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		var err error
		switch in.Text() {
		case "save":
			_, err = w.Save(context.Background(), &ckpt.SaveRequest{Agent: "w", Kind: ckpt.KindRoutine, State: []byte(`1`)})
		case "claim":
			_, _, err = w.Resume(context.Background(), ckpt.ResumeRequest{Agent: "w", Force: true, PID: os.Getpid()})
		}
		if err != nil {
			fmt.Println(err)
			continue
		}
		fmt.Println("ok")
	}
}

type spoken struct {
	in  io.Writer
	out *bufio.Reader
}

func speak(t *testing.T, socket string) spoken {
	t.Helper()
	cmd := exec.Command(os.Args[0], "speaker", socket)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	must(t, err)
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	t.Cleanup(func() {
		_ = in.Close()
		_ = cmd.Wait()
	})
	return spoken{in, bufio.NewReader(out)}
}

func (s spoken) do(t *testing.T, what string) string {
	t.Helper()
	_, err := fmt.Fprintln(s.in, what)
	must(t, err)
	line, err := s.out.ReadString('\n')
	must(t, err)
	return strings.TrimSuffix(line, "\n")
}

// TestAProcessThatWasTakenOverFrom: a process that names no epoch continues to
// write after another process has claimed its run. It is fenced. The new owner,
// the parent of both, and a process that started later are not.
func TestAProcessThatWasTakenOverFrom(t *testing.T) {
	t.Parallel()
	d := started(t)
	d.open(t)
	old := speak(t, d.socket)
	if answer := old.do(t, "save"); answer != "ok" {
		t.Fatal(answer)
	}
	owner := speak(t, d.socket)
	// Linux counts process start times in hundredths of a second: the old
	// process must be older than that when the run is claimed.
	for begun := time.Now(); time.Since(begun) < 50*time.Millisecond; {
		if answer := owner.do(t, "save"); answer != "ok" {
			t.Fatal(answer)
		}
	}
	if answer := owner.do(t, "claim"); answer != "ok" {
		t.Fatal(answer)
	}
	if answer := old.do(t, "save"); !strings.Contains(answer, "is older and unrelated: stop, or resume the run") {
		t.Errorf("the old writer's save after the take-over: %s", answer)
	}
	for who, s := range map[string]spoken{"the owner": owner, "a later process": speak(t, d.socket)} {
		if answer := s.do(t, "save"); answer != "ok" {
			t.Errorf("%s: %s", who, answer)
		}
	}
	_, err := d.open(t).Wire().Save(t.Context(), &ckpt.SaveRequest{Agent: "w", Kind: ckpt.KindRoutine, State: []byte(`2`)})
	must(t, err) // this process is the parent of both
	if answer := old.do(t, "claim"); answer != "ok" {
		t.Errorf("the old writer resumes the run: %s", answer)
	}
	if answer := old.do(t, "save"); answer != "ok" {
		t.Errorf("the old writer after it took the run back: %s", answer)
	}
}
