package client_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/client"
	"github.com/ckptsidecar/ckptsidecar/internal/expect"
)

// asker is the agent of TestAskingAgents, in a separate process.
func asker(socket, log string) {
	c := &client.Client{Socket: socket}
	err := c.Agent("deployer").Run(context.Background(), client.RunOptions{Force: true}, func(ctx context.Context, run *client.Run) error {
		if _, err := run.Save(ctx, map[string]bool{"built": true}); err != nil {
			return err
		}
		p, err := run.Ask(ctx, "Deploy to production?", client.Question{Key: "deploy-1", Choices: []string{"approve", "reject"},
			Schema: `{"type":"object","required":["env"]}`, Expires: time.Hour})
		if err != nil {
			return err
		}
		return os.WriteFile(log, []byte(string(p.Choice)+" "+string(p.Data)), 0o600)
	})
	if err != nil {
		panic(err)
	}
}

func openPrompt(t *testing.T, w *client.Wire) *ckpt.Prompt {
	t.Helper()
	var page *ckpt.PromptPage
	expect.Soon(t, "somebody asks", func() (asked bool) {
		var err error
		page, err = w.Prompts(t.Context(), ckpt.PromptFilter{Open: true})
		return err == nil && len(page.Prompts) == 1
	})
	return &page.Prompts[0]
}

// TestAskingAgents kills the daemon while an agent waits for an answer: the
// agent continues to wait and gets it. Then the test also kills the agent: the
// next one that resumes the run asks the same question and gets the answer.
func TestAskingAgents(t *testing.T) {
	t.Parallel()
	for _, agentDies := range []bool{false, true} {
		d := started(t)
		w := d.open(t).Wire()
		log := filepath.Join(d.dir, "log")
		begin := func() *exec.Cmd {
			cmd := exec.Command(os.Args[0], "asker", d.socket, log)
			cmd.Stderr = os.Stderr
			must(t, cmd.Start())
			return cmd
		}
		agent := begin()
		p := openPrompt(t, w)
		_ = d.cmd.Process.Kill()
		_ = d.cmd.Wait()
		if agentDies {
			_ = agent.Process.Kill()
			_ = agent.Wait()
		}
		d.start()
		_, _, err := w.AnswerPrompt(t.Context(), ckpt.PromptAnswer{ID: p.ID, Choice: "approve", Data: ckpt.JSON(`{"env":"prod"}`)})
		must(t, err)
		if agentDies {
			if _, err := os.Stat(log); err == nil {
				t.Error("the dead agent has gone on")
			}
			agent = begin()
		}
		must(t, agent.Wait())
		if text, err := os.ReadFile(log); err != nil || string(text) != `approve {"env":"prod"}` {
			t.Errorf("noted: %s %v", text, err)
		}
	}
}

func TestAQuestionThatSuspends(t *testing.T) {
	t.Parallel()
	d := started(t)
	c := d.open(t)
	a := c.Agent("a")
	work := func() (choice string, err error) {
		err = a.Run(t.Context(), client.RunOptions{}, func(ctx context.Context, run *client.Run) error {
			p, err := run.Ask(ctx, "Go on?", client.Question{Suspend: true})
			if err == nil {
				choice = string(p.Choice)
			}
			return err
		})
		return choice, err
	}
	_, err := work()
	var open *client.UnansweredError
	if !errors.As(err, &open) || open.Prompt.Status != ckpt.PromptOpen {
		t.Fatal(err)
	}
	run, err := c.Wire().Run(t.Context(), ckpt.RunRef{Agent: "a"})
	must(t, err)
	if run.Status != ckpt.RunSuspended {
		t.Errorf("the run is %s", run.Status)
	}
	_, _, err = c.Wire().AnswerPrompt(t.Context(), ckpt.PromptAnswer{ID: open.Prompt.ID, Choice: "yes"})
	must(t, err)
	if choice, err := work(); err != nil || choice != "yes" {
		t.Errorf("%q %v", choice, err)
	}
}
