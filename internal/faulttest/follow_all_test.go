//go:build unix

package faulttest

import (
	"context"
	"errors"
	"fmt"
	"testing"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/ipc/client"
)

// TestFollowingAllRuns kills the daemon while a follower of all runs reads and an agent appends to several runs.
// The follower gets each acknowledged event once, in the order of its run.
func TestFollowingAllRuns(t *testing.T) {
	t.Parallel()
	d := NewDaemon(t)
	d.Start()
	const runs, rounds, each = 3, 4, 60
	enough := errors.New("enough")
	got := map[string]int64{}
	total := 0
	progress := make(chan int, runs*rounds*each)
	followed := make(chan error, 1)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() {
		c := client.Client{Socket: d.Socket}
		defer c.Close()
		followed <- c.FollowAll(ctx, 0, func(e ckpt.OwnerEvent) error {
			if e.Seq != got[e.Run]+1 {
				return fmt.Errorf("event %d of run %s comes after event %d", e.Seq, e.Run, got[e.Run])
			}
			got[e.Run] = e.Seq
			total++
			progress <- total
			if total == runs*rounds*each {
				return enough
			}
			return nil
		})
	}()
	c := d.Client()
	for round := range rounds {
		for i := range each {
			for run := range runs {
				ref := ckpt.RunRef{Agent: "a", Run: fmt.Sprint("r", run)}
				if _, _, err := c.Append(t.Context(), ref, []ckpt.NewEvent{{Type: "t"}}, fmt.Sprintf("%d-%d-%d", round, i, run)); err != nil {
					t.Fatal(err)
				}
			}
		}
		if round < rounds-1 {
			<-progress // the follower reads
			d.Kill()
			d.Start()
			c = d.Client()
		}
	}
	if err := <-followed; !errors.Is(err, enough) {
		t.Error(err)
	}
	if total != runs*rounds*each {
		t.Errorf("%d events came, want %d", total, runs*rounds*each)
	}
}
