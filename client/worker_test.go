package client_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/client"
)

const workSteps = 100

// worker is an agent that is killed repeatedly. It does a hundred steps, every
// tenth of them with an operation, and writes down each effect. Each byte of
// its standard input allows one step; the end of the input allows all.
func worker(args []string) {
	effects, err := os.OpenFile(args[1], os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		panic(err)
	}
	c := client.Client{Socket: args[0]}
	err = c.Agent("w").Run(context.Background(), client.RunOptions{}, func(ctx context.Context, run *client.Run) error {
		var s struct{ Done []int }
		if _, err := run.Restore(&s); err != nil {
			return err
		}
		for i := len(s.Done); i < workSteps; i++ {
			_, _ = os.Stdin.Read(make([]byte, 1))
			n, err := client.Step(ctx, run, fmt.Sprint("step", i), func(context.Context) (int, error) {
				time.Sleep(6 * time.Millisecond)
				_, err := fmt.Fprintf(effects, "step %d\n", i)
				return i * i, err
			})
			if err != nil {
				return err
			}
			if n != i*i {
				return fmt.Errorf("step %d gave %d", i, n)
			}
			if i%10 == 9 {
				if _, err := run.Operation(ctx, fmt.Sprint("operation", i), nil, func(context.Context) error {
					_, err := fmt.Fprintf(effects, "operation %d\n", i)
					return err
				}); err != nil {
					return err
				}
			}
			s.Done = append(s.Done, i)
			if _, err := run.Save(ctx, s); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println("finished")
}

// underExec is an agent that fails twice. It has a second run, which exec knows nothing of.
func underExec(state string) error {
	c := &client.Client{}
	defer c.Close()
	a := c.Agent(os.Getenv("CKPTSIDECAR_AGENT"))
	switch state {
	case "no name":
		return namesNoRun(a)
	case "second owner":
		_, err := a.Start(context.Background(), client.RunOptions{Name: os.Getenv("CKPTSIDECAR_RUN")})
		return err
	}
	return a.Run(context.Background(), client.RunOptions{Goal: "count", ProgressTimeout: time.Hour}, func(ctx context.Context, run *client.Run) error {
		n := 0
		if state == "bytes" {
			var b []byte
			if _, err := run.Restore(&b); err != nil {
				return err
			}
			n = strings.Count(string(b), "\xff")
		} else if _, err := run.Restore(&n); err != nil {
			return err
		}
		second, err := a.Start(ctx, client.RunOptions{Name: "beside"})
		if err != nil {
			return err
		}
		fmt.Printf("%s %s %d, %s %s\n", run.Name, run.Plan.Verdict, n, second.Name, second.Plan.Verdict)
		if out, err := exec.CommandContext(ctx, os.Args[0], "underExec", "second owner").CombinedOutput(); err == nil {
			return fmt.Errorf("a process that the agent started has the run too: %s", out)
		}
		if err := second.End(ctx, ckpt.EndRequest{Status: ckpt.RunSuspended}); err != nil {
			return err
		}
		var next any = n + 1
		if state == "bytes" {
			next = []byte(strings.Repeat("\xff", n+1))
		}
		if _, err := run.Save(ctx, next); err != nil {
			return err
		}
		if n < 2 {
			return errors.New("again")
		}
		return nil
	})
}

// namesNoRun begins two runs one after the other, and saves and restores beside them.
func namesNoRun(a *client.Agent) error {
	for range 2 {
		err := a.Run(context.Background(), client.RunOptions{}, func(ctx context.Context, run *client.Run) error {
			saved, err := a.Save(ctx, run.Plan.Attempt)
			if err != nil {
				return err
			}
			attempt := 0
			restored, err := a.Restore(ctx, &attempt)
			if err != nil {
				return err
			}
			fmt.Println(run.Name, run.Plan.Verdict, saved.Run, restored.Run, attempt)
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}
