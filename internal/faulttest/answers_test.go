//go:build unix

package faulttest

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/ipc/client"
)

// answersVariable makes the test program play an agent that runs generated
// code. It holds the socket, the file of effects, and whether to crash.
const answersVariable = "FAULTTEST_ANSWERS"

// answers are what a model said, one after the other. The third answer says the
// same thing twice, so a search for the text would continue at the wrong place.
var answers = []string{
	"effect('read')\neffect('plan')\n",
	"effect('edit')\n",
	"effect('test')\neffect('commit')\neffect('test')\neffect('commit')\neffect('push')\n",
}

// memory is the agent's state.
type memory struct {
	Answer int `json:"answer"` // the answer that is running
}

// playAnswers is the agent's process. It resumes, runs the statements that have
// not run, and saves its progress after each statement.
func playAnswers(setting string) error {
	var s struct {
		Socket, Effects string
		Crash           bool
	}
	if err := json.Unmarshal([]byte(setting), &s); err != nil {
		return err
	}
	c := &client.Client{Socket: s.Socket}
	plan, _, err := c.Resume(context.Background(), ckpt.ResumeRequest{Agent: "coder", PID: os.Getpid()})
	if err != nil {
		return err
	}
	var m memory
	executed := int64(0)
	if plan.Checkpoint != nil {
		if err := json.Unmarshal(plan.Checkpoint.State, &m); err != nil {
			return err
		}
		executed = plan.Program.Executed
		fmt.Println(plan.Program.Remaining)
	}
	for ; m.Answer < len(answers); m.Answer++ {
		if err := runAnswer(c, plan.Epoch, m, executed, s.Effects, s.Crash); err != nil {
			return err
		}
		executed = 0
	}
	_, _, err = c.EndRun(context.Background(), ckpt.RunRef{Agent: "coder"}, ckpt.EndRequest{Epoch: &plan.Epoch, Status: ckpt.RunCompleted})
	return err
}

func runAnswer(c *client.Client, epoch int64, m memory, executed int64, effects string, crash bool) error {
	source := answers[m.Answer]
	for n := 1; executed < int64(len(source)); n++ {
		statement, _, _ := strings.Cut(source[executed:], "\n")
		if err := appendLine(effects, statement); err != nil {
			return err
		}
		executed += int64(len(statement)) + 1
		state, err := json.Marshal(m)
		if err != nil {
			return err
		}
		_, err = c.Save(context.Background(), &ckpt.SaveRequest{Agent: "coder", Kind: ckpt.KindRoutine, Epoch: &epoch, ContentType: ckpt.ContentTypeJSON,
			State: state, Program: &ckpt.Program{Source: source, Executed: executed}})
		if err != nil {
			return err
		}
		if crash && m.Answer == 2 && n == 2 {
			return syscall.Kill(os.Getpid(), syscall.SIGKILL)
		}
	}
	return nil
}

func appendLine(path, line string) error {
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = fmt.Fprintln(f, line)
	return err
}

// TestThreeAnswers: an agent that runs generated code is killed with SIGKILL
// after the second statement of the third answer. The plan names exactly the
// statements that are left. They run, and no statement runs twice.
func TestThreeAnswers(t *testing.T) {
	beside(t)
	d := NewDaemon(t)
	d.Start()
	effects := filepath.Join(t.TempDir(), "effects")
	out, err := agentProcess(t, d, effects, true)
	if status, ok := err.(*exec.ExitError); !ok || status.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		t.Fatalf("the agent was to be killed: %v\n%s", err, out)
	}
	d.Kill() // the daemon is killed as well
	d.Start()
	out, err = agentProcess(t, d, effects, false)
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if rest := "effect('test')\neffect('commit')\neffect('push')\n"; !strings.HasPrefix(out, rest+"\n") {
		t.Errorf("the plan's rest of the program is\n%swant\n%s", out, rest)
	}
	did, err := os.ReadFile(effects)
	if err != nil {
		t.Fatal(err)
	}
	if want := strings.Join(answers, ""); string(did) != want {
		t.Errorf("the effects are\n%swant\n%s", did, want)
	}
	run, err := d.Client().Run(t.Context(), ckpt.RunRef{Agent: "coder"})
	if err != nil || run.Status != ckpt.RunCompleted || run.Attempt != 2 {
		t.Errorf("the run is %+v, %v", run, err)
	}
}

func agentProcess(t *testing.T, d *Daemon, effects string, crash bool) (string, error) {
	t.Helper()
	setting, err := json.Marshal(map[string]any{"Socket": d.Client().Socket, "Effects": effects, "Crash": crash})
	if err != nil {
		t.Fatal(err)
	}
	agent := exec.Command(os.Args[0])
	agent.Env = append(os.Environ(), answersVariable+"="+string(setting))
	out, err := agent.CombinedOutput()
	return string(out), err
}
