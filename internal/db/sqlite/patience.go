package sqlite

import (
	"context"
	"time"

	"github.com/cenkalti/backoff/v4"
)

// patience is the one way to wait for a database that another process has locked: with jitter, with
// pauses that grow to a quarter of a second, and always with a bound.
func patience(atMost time.Duration) *backoff.ExponentialBackOff {
	return backoff.NewExponentialBackOff(
		backoff.WithInitialInterval(time.Millisecond),
		backoff.WithMaxInterval(250*time.Millisecond),
		backoff.WithMultiplier(1.7),
		backoff.WithMaxElapsedTime(atMost),
	)
}

// retry runs a whole transaction until it succeeds, fails for a reason that waiting does not
// change, or the time is over. It returns how often it began again.
func retry(ctx context.Context, atMost time.Duration, transaction func(retries int) error) (retries int, err error) {
	attempts, once := 0, false
	err = backoff.Retry(func() error {
		err := transaction(attempts)
		attempts++
		switch Classify(err) {
		case ClassTransient:
			return err
		case ClassOnce:
			if !once {
				once = true
				return err
			}
		}
		if err != nil {
			return backoff.Permanent(err)
		}
		return nil
	}, backoff.WithContext(patience(atMost), ctx))
	return attempts - 1, err
}
