package fleetcmd

import (
	"context"
	"errors"
	"strings"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/cli"
	"github.com/ckptsidecar/ckptsidecar/internal/ipc/client"
	"github.com/ckptsidecar/ckptsidecar/internal/periodic"
)

// erasureLook is how often the engine is asked which hosts have confirmed an erasure.
const erasureLook = time.Second

// WaitErased waits until all hosts of the fleet have erased an agent too, and records in
// gone which hosts have. It also waits while the engine is unreachable.
func WaitErased(ctx context.Context, a *cli.App, gone *ckpt.Erased, timeout time.Duration) error {
	f := gone.Fleet
	if f == nil {
		return nil
	}
	if len(f.Waiting) > 0 { // as far as this host knows; the engine knows more
		a.Tell("%s is erased here; waiting for %s", gone.Agent, strings.Join(f.Waiting, ", "))
	}
	if timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, timeout)
		defer cancel()
	}
	return waitErased(ctx, f, func(ctx context.Context) (*ckpt.ErasedFleet, error) {
		return client.Operator{Client: a.Client()}.Erasure(ctx, f.N)
	})
}

// waitErased asks until no host is left that has not confirmed.
func waitErased(ctx context.Context, f *ckpt.ErasedFleet, ask func(context.Context) (*ckpt.ErasedFleet, error)) error {
	var failure error
	for {
		now, err := ask(ctx)
		switch {
		case err == nil && len(now.Waiting) == 0:
			*f = *now
			return nil
		case err == nil:
			*f = *now
			failure = nil
		case ctx.Err() != nil: // the time is over, which says nothing of the engine
		case ckpt.CodeOf(err) == ckpt.CodeBusy:
			failure = err
		default:
			return err
		}
		if err := periodic.Wait(ctx, erasureLook); err != nil {
			return stillWaits(err, failure, f)
		}
	}
}

// stillWaits lists the hosts that have not confirmed in time.
func stillWaits(stopped, failure error, f *ckpt.ErasedFleet) error {
	if !errors.Is(stopped, context.DeadlineExceeded) {
		return stopped
	}
	message := "these hosts of the fleet have not confirmed in time: " + strings.Join(f.Waiting, ", ") +
		"; the erasure goes on, and ckptsidecar fleet status says when they have"
	if failure != nil {
		message += "; the engine could not be asked: " + failure.Error()
	}
	return &cli.ExitError{Code: cli.ExitTryLater, Message: message}
}
