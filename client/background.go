package client

import (
	"context"
	"sync"
	"time"
)

// background is the work that a run does in the background until the run ends.
type background struct {
	ended context.Context
	end   context.CancelFunc
	done  sync.WaitGroup
}

func newBackground() *background {
	b := new(background)
	b.ended, b.end = context.WithCancel(context.Background())
	return b
}

// every calls work after each pause, until ctx ends, the caller calls stop, or the run
// ends.
func (b *background) every(ctx context.Context, pause time.Duration, work func(context.Context)) (stop func()) {
	ctx, stop = context.WithCancel(ctx)
	forget := context.AfterFunc(b.ended, stop)
	b.done.Go(func() {
		defer forget()
		tick := time.NewTicker(pause)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			work(ctx)
		}
	})
	return stop
}

// stop ends all work, and waits for the work in progress.
func (b *background) stop() {
	b.end()
	b.done.Wait()
}
