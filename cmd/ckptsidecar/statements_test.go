package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/ipc/client"
)

// statements is an agent: a program of this many statements, each with an
// effect outside, a line in a file. It is run as
//
//	statements FOLDER NUMBER PAUSE
//
// and does what an agent must do to survive a kill at any moment. It reads the
// plan that exec gives it and does each statement as a step. If a statement was
// interrupted, it first checks whether the statement took effect.
func statements() {
	if err := runStatements(); err != nil {
		fmt.Fprintln(os.Stderr, "statements:", err)
		os.Exit(1)
	}
}

type progressState struct {
	Done int    `json:"done"`
	Note string `json:"note"`
}

func runStatements() error {
	folder := os.Args[1]
	number, err := strconv.Atoi(os.Args[2])
	if err != nil {
		return err
	}
	pause, err := time.ParseDuration(os.Args[3])
	if err != nil {
		return err
	}
	plan, err := readPlan()
	if err != nil {
		return err
	}
	var state progressState
	if plan.Checkpoint != nil {
		if err := json.Unmarshal(plan.Checkpoint.State, &state); err != nil {
			return err
		}
	}
	open := map[string]bool{}
	for _, step := range plan.InterruptedSteps {
		open[step.Key] = true
	}
	epoch, err := strconv.ParseInt(os.Getenv("CKPTSIDECAR_EPOCH"), 10, 64)
	if err != nil {
		return err
	}
	p := &statementRun{
		client: &client.Client{Retry: time.Minute}, folder: folder, open: open, pause: pause,
		ref: ckpt.RunRef{Agent: os.Getenv("CKPTSIDECAR_AGENT"), Run: os.Getenv("CKPTSIDECAR_RUN"), Epoch: &epoch},
	}
	for n := state.Done + 1; n <= number; n++ {
		if err := p.statement(n); err != nil {
			return fmt.Errorf("statement %d: %w", n, err)
		}
		if n%20 == 0 {
			if err := p.save(n); err != nil {
				return fmt.Errorf("save after %d: %w", n, err)
			}
		}
	}
	return nil
}

func readPlan() (*planForAgent, error) {
	text, err := os.ReadFile(os.Getenv("CKPTSIDECAR_PLAN"))
	if err != nil {
		return nil, err
	}
	plan := new(planForAgent)
	return plan, json.Unmarshal(text, plan)
}

// planForAgent is the part of a plan that this agent needs.
type planForAgent struct {
	Checkpoint *struct {
		State json.RawMessage `json:"state"`
	} `json:"checkpoint"`
	Attempt          int                    `json:"attempt"`
	CompletedSteps   []ckpt.CompletedStep   `json:"completed_steps"`
	InterruptedSteps []ckpt.InterruptedStep `json:"interrupted_steps"`
}

type statementRun struct {
	client *client.Client
	ref    ckpt.RunRef
	folder string
	open   map[string]bool
	pause  time.Duration
}

func (p *statementRun) statement(n int) error {
	ctx, key := context.Background(), fmt.Sprintf("statement-%03d", n)
	step, _, err := p.client.BeginStep(ctx, p.ref, ckpt.StepRequest{Key: key, Name: "append"})
	if err != nil || step.Replayed {
		return err
	}
	if !p.open[key] || !p.tookEffect(key) {
		if err := appendLine(filepath.Join(p.folder, "effects"), key); err != nil {
			return err
		}
	}
	time.Sleep(p.pause)
	if _, _, err := p.client.FinishStep(ctx, p.ref, ckpt.StepRequest{Key: key, Status: ckpt.StepSucceeded, Result: ckpt.JSON(strconv.Itoa(n))}); err != nil {
		return err
	}
	return appendLine(filepath.Join(p.folder, "reported"), key)
}

func (p *statementRun) tookEffect(key string) bool {
	text, _ := os.ReadFile(filepath.Join(p.folder, "effects"))
	return bytes.Contains(text, []byte(key+"\n"))
}

func (p *statementRun) save(n int) error {
	state, err := json.Marshal(progressState{n, "so far"})
	if err != nil {
		return err
	}
	_, err = p.client.Save(context.Background(), &ckpt.SaveRequest{
		Agent: p.ref.Agent, Run: p.ref.Run, Epoch: p.ref.Epoch, Kind: ckpt.KindRoutine, ContentType: ckpt.ContentTypeJSON, State: state,
	})
	return err
}

// appendLine adds a line in one write, which happens completely or not at all.
func appendLine(path, line string) error {
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = f.WriteString(line + "\n")
	return err
}
