//go:build unix

package faulttest

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/ipc/client"
)

// beatsVariable makes the test program play an agent that saves once and then
// only sends heartbeats. It holds the socket and the agent's name.
const beatsVariable = "FAULTTEST_BEATS"

// silence is how long the agent may be silent.
const silence = time.Second

func playBeats(setting string) error {
	var s struct{ Socket, Agent string }
	if err := json.Unmarshal([]byte(setting), &s); err != nil {
		return err
	}
	c, ctx := &client.Client{Socket: s.Socket}, context.Background()
	limit := ckpt.Duration(silence)
	run, _, err := c.StartRun(ctx, ckpt.RunRequest{Agent: s.Agent, PID: os.Getpid(), HeartbeatTimeout: &limit})
	if err != nil {
		return err
	}
	if _, err := c.Save(ctx, &ckpt.SaveRequest{Agent: s.Agent, Kind: ckpt.KindRoutine, Epoch: &run.Epoch, ContentType: ckpt.ContentTypeJSON, State: []byte(`{"memory":1}`)}); err != nil {
		return err
	}
	for {
		time.Sleep(silence / 5)
		if _, err := c.Beat(ctx, ckpt.RunRef{Agent: s.Agent}, ckpt.Heartbeat{Epoch: &run.Epoch}); err != nil {
			return err
		}
	}
}

// TestFrozenAgent: the daemon notices within the silence limit that an agent
// was stopped by SIGSTOP. With autoresume the run waits to be resumed. Without
// it the daemon asks a person, who sees beforehand what a clean start would
// lose.
func TestFrozenAgent(t *testing.T) {
	beside(t)
	d := NewDaemon(t)
	d.Start()
	c := d.Client()
	policy := ckpt.DefaultPolicy()
	policy.Autoresume = false
	if _, err := c.SetPolicy(t.Context(), "asks", policy); err != nil {
		t.Fatal(err)
	}
	for _, agent := range []string{"waits", "asks"} {
		t.Run(agent, func(t *testing.T) {
			p := beatingAgent(t, d, agent)
			waitStatus(t, c, agent, ckpt.RunRunning, time.Minute)
			time.Sleep(2 * silence) // it sends heartbeats, so it is alive
			waitStatus(t, c, agent, ckpt.RunRunning, 0)
			if err := p.Signal(syscall.SIGSTOP); err != nil {
				t.Fatal(err)
			}
			began := time.Now()
			waitStatus(t, c, agent, ckpt.RunTimedOut, time.Minute)
			t.Logf("found after %s of a limit of %s", time.Since(began).Round(time.Millisecond), silence)
			checkFrozen(t, c, agent)
		})
	}
}

func checkFrozen(t *testing.T, c *client.Client, agent string) {
	t.Helper()
	prompts, err := c.Prompts(t.Context(), ckpt.PromptFilter{Open: true})
	if err != nil {
		t.Fatal(err)
	}
	plan, _, err := c.Resume(t.Context(), ckpt.ResumeRequest{Agent: agent})
	if err != nil {
		t.Fatal(err)
	}
	if agent == "waits" {
		// The process still exists and may continue, so a person has to stop it
		// first.
		if plan.Verdict != ckpt.VerdictRepair || !plan.Claimed || len(prompts.Prompts) != 0 {
			t.Errorf("the plan is %+v, the prompts are %+v", plan, prompts.Prompts)
		}
		return
	}
	if plan.Verdict != ckpt.VerdictAsk || len(prompts.Prompts) != 1 || plan.Prompt.ID != prompts.Prompts[0].ID {
		t.Fatalf("the plan is %+v, the prompts are %+v", plan, prompts.Prompts)
	}
	if diff := string(prompts.Prompts[0].MemoryDiff); diff != `[{"op":"remove","path":"/memory"}]` && diff != `[]` {
		t.Errorf("a clean beginning is said to lose %s", diff)
	}
	answer := ckpt.PromptAnswer{ID: plan.Prompt.ID, Choice: ckpt.ChoiceReinitialize}
	if _, _, err := c.AnswerPrompt(t.Context(), answer); err != nil {
		t.Fatal(err)
	}
	plan, _, err = c.Resume(t.Context(), ckpt.ResumeRequest{Agent: agent})
	if err != nil || plan.Verdict != ckpt.VerdictFresh || plan.Checkpoint != nil {
		t.Errorf("after a clean beginning was chosen: %+v, %v", plan, err)
	}
}

func beatingAgent(t *testing.T, d *Daemon, agent string) *os.Process {
	t.Helper()
	setting, err := json.Marshal(map[string]string{"Socket": d.Client().Socket, "Agent": agent})
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), beatsVariable+"="+string(setting))
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	return cmd.Process
}

// waitStatus waits at most this long until a run has the status.
func waitStatus(t *testing.T, c *client.Client, agent string, want ckpt.RunStatus, most time.Duration) {
	t.Helper()
	for end := time.Now().Add(most); ; time.Sleep(20 * time.Millisecond) {
		run, err := c.Run(t.Context(), ckpt.RunRef{Agent: agent})
		if err == nil && run.Status == want {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("the run is %+v, %v, not %s", run, err, want)
		}
	}
}
