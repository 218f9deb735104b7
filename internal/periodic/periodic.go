// Package periodic is the loop of a background worker: a round, a pause, and again.
//
// This package may import the standard library only.
package periodic

import (
	"context"
	"math/rand/v2"
	"time"
)

// Run calls round at once, and again after each pause, until ctx ends. round returns the length of
// the next pause, which varies by up to a tenth. Run does not fail: a round handles its own errors,
// and the next round tries again.
func Run(ctx context.Context, round func(context.Context) (pause time.Duration)) error {
	return RunWoken(ctx, nil, round)
}

// RunWoken is Run, except that a value from wake ends a pause at once.
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

// Every calls f once in each period, first after one period, until ctx ends or f fails. It returns
// the error of f. It skips a period if f is still running in it.
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

// Wait waits for d. If ctx ends, it returns the reason at once.
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

// jitter returns d, changed by up to a tenth, so that workers do not run in step.
func jitter(d time.Duration) time.Duration {
	return d - d/10 + rand.N(d/5+1)
}
