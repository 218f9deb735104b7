// Package periodic is the loop of a background worker: a round, a pause, and again.
//
// This package may import the standard library only.
package periodic

import (
	"context"
	"math/rand/v2"
	"time"
)

// Run calls round at once, and again after each pause, until ctx ends. round says how long
// the next pause is, give or take a tenth. Run does not fail: a round deals with its own
// errors, and the next one tries again.
func Run(ctx context.Context, round func(context.Context) (pause time.Duration)) error {
	return RunWoken(ctx, nil, round)
}

// RunWoken is Run, and what comes from wake ends a pause at once.
func RunWoken(ctx context.Context, wake <-chan struct{}, round func(context.Context) (pause time.Duration)) error {
	for {
		timer := time.NewTimer(jitter(round(ctx)))
		select {
		case <-ctx.Done():
		case <-wake:
		case <-timer.C:
		}
		timer.Stop()
		if ctx.Err() != nil {
			return nil
		}
	}
}

// Every calls f once in each period, the first time after one, until ctx ends or
// f fails: its error is the answer. A period that f has taken up is left out.
func Every(ctx context.Context, period time.Duration, f func(context.Context) error) error {
	tick := time.NewTicker(period)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			if err := f(ctx); err != nil {
				return err
			}
		}
	}
}

// Wait waits, or answers at once why ctx has ended.
func Wait(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return ctx.Err()
	}
}

// jitter is d, give or take a tenth, so that workers do not keep step.
func jitter(d time.Duration) time.Duration {
	return d - d/10 + rand.N(d/5+1)
}
