package periodic

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// TestRun: the first round starts at once, each pause is what the round has requested, plus or minus a tenth, and
// nothing follows the end of the context.
func TestRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		began, rounds := time.Now(), []time.Duration{}
		err := Run(ctx, func(context.Context) time.Duration {
			if rounds = append(rounds, time.Since(began)); len(rounds) == 4 {
				cancel()
			}
			began = time.Now()
			return time.Duration(len(rounds)) * time.Minute
		})
		if err != nil || len(rounds) != 4 || rounds[0] != 0 {
			t.Fatalf("%v, %v", rounds, err)
		}
		for i, pause := range rounds[1:] {
			asked := time.Duration(i+1) * time.Minute
			if pause < asked-asked/10 || pause > asked+asked/10 {
				t.Errorf("pause %d was %v, asked for %v", i+1, pause, asked)
			}
		}
	})
}

func TestWaitEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if Wait(ctx, time.Hour) == nil || Wait(ctx, 0) == nil {
		t.Error("an ended context was waited out")
	}
	if err := Wait(t.Context(), 0); err != nil {
		t.Error(err)
	}
}

// TestEvery: the first call comes after one period. An error of a call ends it, and so does the context.
func TestEvery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began, calls, fault := time.Now(), 0, errors.New("fault")
		err := Every(t.Context(), time.Minute, func(context.Context) error {
			if calls++; time.Since(began) != time.Duration(calls)*time.Minute {
				t.Errorf("call %d came after %v", calls, time.Since(began))
			}
			if calls == 3 {
				return fault
			}
			return nil
		})
		if !errors.Is(err, fault) || calls != 3 {
			t.Errorf("%v after %d calls", err, calls)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := Every(ctx, time.Minute, func(context.Context) error { return fault }); err != nil {
			t.Errorf("the end of the context is %v", err)
		}
	})
}
