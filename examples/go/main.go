// A worker that survives being killed: start it, kill it with kill -9 at any
// moment, start it again, and it goes on where it was.
//
//	ckptsidecar serve &
//	go build -o worker ./examples/go && ./worker
//
// It may import nothing of ours but client.
package main

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/ckptsidecar/ckptsidecar/client"
)

// State is what the worker must not forget.
type State struct {
	Page  int   `json:"page"`
	Total int64 `json:"total"`
}

func main() {
	var sidecar client.Client
	defer sidecar.Close()
	err := sidecar.Agent("crawler").Run(context.Background(), client.RunOptions{Name: "nightly", Goal: "count the words of ten pages"}, work)
	if err != nil {
		log.Fatal(err)
	}
}

func work(ctx context.Context, run *client.Run) error {
	var state State
	found, err := run.Restore(&state)
	if err != nil {
		return err
	}
	if found {
		fmt.Printf("going on at page %d (%s)\n", state.Page, run.Plan.Verdict)
	}
	run.State(func() any { return state }) // saved when SIGTERM or an error ends the run
	for state.Page < 10 {
		words, err := client.Step(ctx, run, fmt.Sprint("count-", state.Page), func(ctx context.Context) (int64, error) {
			return count(ctx, state.Page)
		})
		if err != nil {
			return err
		}
		state.Page++
		state.Total += words
		if _, err := run.Save(ctx, state); err != nil {
			return err
		}
		run.Progress(float64(state.Page) / 10)
	}
	_, err = run.Operation(ctx, "publish", state, func(context.Context) error {
		fmt.Printf("published: %d words\n", state.Total)
		return nil
	})
	return err
}

// count stands for something slow and costly.
func count(ctx context.Context, page int) (int64, error) {
	select {
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	case <-time.After(500 * time.Millisecond):
		return int64(1000 + page), nil
	}
}
