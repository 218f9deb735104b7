package client_test

import (
	"bufio"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/client"
	"github.com/ckptsidecar/ckptsidecar/internal/expect"
)

// wantKills times stepsEach is less than workSteps, so the work is not done
// before the last kill, however fast the machine is.
const (
	wantKills = 20
	stepsEach = 4
)

// TestKilledAgents kills a worker twenty times in the middle of its work. What
// it has reported happens once. If it dies in an operation, an operator
// decides.
func TestKilledAgents(t *testing.T) {
	t.Parallel()
	d := started(t)
	c := d.open(t)
	effects := filepath.Join(d.dir, "effects")
	effectsFile = effects
	kills, asked, last := 0, 0, ""
	for round := 0; ; round++ {
		if round > 200 {
			t.Fatalf("the work is never done; the worker last said %q", last)
		}
		cmd := exec.Command(os.Args[0], "worker", d.socket, effects)
		var out strings.Builder
		cmd.Stdout, cmd.Stderr = &out, &out
		allow, err := cmd.StdinPipe()
		must(t, err)
		must(t, cmd.Start())
		if kills < wantKills {
			killAtWork(t, cmd, allow)
			kills++
		} else {
			must(t, allow.Close())
		}
		err = cmd.Wait()
		if err == nil {
			break
		}
		last = out.String()
		// Also if the worker was told to ask: the monitor may have marked an
		// operation only after the last check.
		if answer(t, c) || strings.Contains(last, "(ask)") {
			asked++
		}
	}
	once(t)
	if kills < wantKills {
		t.Errorf("the work was done after %d kills, want %d", kills, wantKills)
	}
	t.Logf("%d kills, %d questions", kills, asked)
}

// killAtWork lets a worker do a few steps and kills it at a random moment in
// them. A worker that does no step ends by itself or waits for an answer, so it
// is killed after half a second.
func killAtWork(t *testing.T, cmd *exec.Cmd, allow io.Writer) {
	t.Helper()
	was := len(lines(t))
	_, _ = allow.Write(make([]byte, stepsEach)) // a worker that has ended reads nothing
	for until := time.Now().Add(500 * time.Millisecond); len(lines(t)) == was && time.Now().Before(until); {
		time.Sleep(time.Millisecond)
	}
	time.Sleep(time.Duration(rand.IntN(stepsEach*8)) * time.Millisecond)
	_ = cmd.Process.Kill()
}

// answer lets a run with an uncertain operation continue. It looks up in the
// effects whether the operation happened, as an operator would.
func answer(t *testing.T, c *client.Client) bool {
	t.Helper()
	asked := false
	expect.Soon(t, "the run can be resumed", func() bool {
		plan, _, err := c.Wire().Resume(t.Context(), ckpt.ResumeRequest{Agent: "w", DryRun: true})
		if err != nil || plan.Verdict == ckpt.VerdictUnsafe {
			return false // its death was not noticed yet
		}
		for _, o := range plan.UncertainOperations {
			asked = true
			choice := ckpt.ChoiceItDidNot
			if slices.Contains(lines(t), strings.Replace(o.Key, "operation", "operation ", 1)) {
				choice = ckpt.ChoiceItDid
			}
			// The operation may look open until the monitor has marked it.
			_, _, err = c.Wire().ResolveOperation(t.Context(), ckpt.RunRef{Agent: "w"}, ckpt.OperationResolution{Key: o.Key, Choice: choice, Reason: "looked it up"})
		}
		return err == nil
	})
	return asked
}

var effectsFile string

func lines(t *testing.T) (all []string) {
	t.Helper()
	f, err := os.Open(effectsFile)
	if err != nil {
		return nil
	}
	defer f.Close()
	for s := bufio.NewScanner(f); s.Scan(); {
		all = append(all, s.Text())
	}
	return all
}

// once checks that every operation happened once, and every step at least once.
// A step may happen more often only if the worker died in it.
func once(t *testing.T) {
	t.Helper()
	count := map[string]int{}
	for _, line := range lines(t) {
		count[line]++
	}
	for i := range workSteps {
		if n := count[fmt.Sprint("step ", i)]; n < 1 || n > 3 {
			t.Errorf("step %d happened %d times", i, n)
		}
		if n := count[fmt.Sprint("operation ", i)]; i%10 == 9 && n != 1 {
			t.Errorf("operation %d happened %d times", i, n)
		}
	}
}

// TestToldToEnd sends SIGTERM to a worker: it saves, and its run can be
// resumed.
func TestToldToEnd(t *testing.T) {
	t.Parallel()
	d := started(t)
	cmd := exec.Command(os.Args[0], "worker", d.socket, filepath.Join(d.dir, "effects"))
	must(t, cmd.Start())
	c := d.open(t)
	expect.Soon(t, "the worker saves", func() bool {
		ck, err := c.Agent("w").Latest(t.Context(), nil)
		return err == nil && ck.Seq > 3
	})
	must(t, cmd.Process.Signal(syscall.SIGTERM))
	if err := cmd.Wait(); err == nil {
		t.Skip("it was done before the signal came")
	}
	run, err := c.Wire().Run(t.Context(), ckpt.RunRef{Agent: "w"})
	if err != nil || run.Status != ckpt.RunInterrupted {
		t.Errorf("%+v, %v", run, err)
	}
}

// stopBySocket ends the daemon that listens on a socket.
func stopBySocket(t *testing.T, path string) {
	conn, err := net.Dial("unix", path)
	if err != nil {
		return
	}
	defer conn.Close()
	raw, err := conn.(*net.UnixConn).SyscallConn()
	must(t, err)
	_ = raw.Control(func(fd uintptr) {
		if cred, err := peer(int(fd)); err == nil {
			_ = syscall.Kill(cred, syscall.SIGTERM)
		}
	})
	for range 500 {
		if _, err := os.Stat(path); err != nil {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func TestAutostart(t *testing.T) {
	d := newDaemon(t)
	t.Setenv("PATH", filepath.Dir(binary)+string(os.PathListSeparator)+os.Getenv("PATH"))
	t.Setenv("HOME", d.dir)
	t.Setenv("XDG_STATE_HOME", "")
	t.Setenv("XDG_CONFIG_HOME", "")
	t.Setenv("CKPTSIDECAR_SOCKET", d.socket)
	t.Setenv("CKPTSIDECAR_DB", filepath.Join(d.dir, "auto.db"))
	c := &client.Client{Autostart: true}
	t.Cleanup(func() { c.Close(); stopBySocket(t, d.socket) })
	saved, err := c.Agent("a").Save(t.Context(), 1)
	if err != nil || saved.Fate != client.Stored {
		t.Fatalf("%+v, %v", saved, err)
	}
}
