package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/client"
)

// spooler is an agent that goes on without the daemon. It is run as
//
//	spooler FOLDER EXIT
//
// At its first attempt it waits until there is no daemon, spools its work, and ends with
// this exit code. At the next one it writes down which steps the plan says are done.
func spooler() {
	if err := runSpooler(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "spooler:", err)
		os.Exit(1)
	}
	code, _ := strconv.Atoi(os.Args[2])
	if _, err := os.Stat(filepath.Join(os.Args[1], "plan")); err == nil {
		code = 0
	}
	os.Exit(code)
}

func runSpooler(folder string) error {
	plan, err := readPlan()
	if err != nil {
		return err
	}
	if plan.Attempt > 1 {
		var keys []string
		for _, step := range plan.CompletedSteps {
			keys = append(keys, step.Key)
		}
		return os.WriteFile(filepath.Join(folder, "plan"), []byte(strings.Join(keys, " ")+"\n"), 0o600)
	}
	epoch, err := strconv.ParseInt(os.Getenv("CKPTSIDECAR_EPOCH"), 10, 64)
	if err != nil {
		return err
	}
	c := &client.Client{FailOpen: true, Deadline: 10 * time.Millisecond}
	ctx, wire := context.Background(), c.Wire()
	if err := os.WriteFile(filepath.Join(folder, "begun"), []byte("\n"), 0o600); err != nil {
		return err
	}
	for wire.Ready(ctx) == nil {
		time.Sleep(time.Millisecond)
	}
	ref := ckpt.RunRef{Agent: os.Getenv("CKPTSIDECAR_AGENT"), Run: os.Getenv("CKPTSIDECAR_RUN"), Epoch: &epoch}
	_, _, _ = wire.BeginStep(ctx, ref, ckpt.StepRequest{Key: "pay", Name: "pay"})
	_, _, _ = wire.FinishStep(ctx, ref, ckpt.StepRequest{Key: "pay", Status: ckpt.StepSucceeded})
	return os.WriteFile(filepath.Join(folder, "spooled"), []byte("\n"), 0o600)
}

// claimer is an agent that claims its run itself, and is killed at its first two attempts.
func claimer() {
	_ = os.Unsetenv("CKPTSIDECAR_PLAN") // else it begins with the claim of exec
	c := &client.Client{}
	err := c.Agent(os.Getenv("CKPTSIDECAR_AGENT")).Run(context.Background(), client.RunOptions{}, func(_ context.Context, run *client.Run) error {
		if run.Plan.Attempt < 5 { // exec and this program claim it in turn
			p, err := os.FindProcess(os.Getpid())
			if err == nil {
				err = p.Kill()
			}
			if err == nil {
				select {} // until it is killed
			}
			return err
		}
		return nil
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, "claimer:", err)
		os.Exit(1)
	}
}

// payer is an agent that pays. It is run as
//
//	payer PAYMENTS DIE before|after
//
// Where the file DIE is, it is killed once, before or after the charge.
func payer() {
	c := &client.Client{FailOpen: true, Deadline: time.Second}
	err := c.Agent("shop").Run(context.Background(), client.RunOptions{}, func(ctx context.Context, run *client.Run) error {
		paid, _, err := client.Operation(ctx, run, "pay-42", func(context.Context, *client.Op) (string, error) {
			dies := os.Remove(os.Args[2]) == nil
			if dies && os.Args[3] == "before" {
				killMyself()
			}
			file, err := os.OpenFile(os.Args[1], os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
			if err != nil {
				return "", err
			}
			if _, err := file.WriteString("charged\n"); err != nil {
				return "", err
			}
			if dies {
				killMyself()
			}
			return "receipt", file.Close()
		})
		if err == nil {
			fmt.Println("paid", paid)
		}
		return err
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, "payer:", err)
		os.Exit(1)
	}
}

// killMyself kills this process as kill -9 does.
func killMyself() {
	p, err := os.FindProcess(os.Getpid())
	if err == nil {
		err = p.Kill()
	}
	if err != nil {
		panic(err)
	}
	select {}
}
