package fleetcmd

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

// TestEraseWaitsInVain: if the time is over while the engine is asked, nothing is said of the engine.
// If the engine failed before, that is said.
func TestEraseWaitsInVain(t *testing.T) {
	t.Parallel()
	const failed = "the engine does not answer"
	for name, fails := range map[string]bool{"in the middle of a question": false, "while the engine is away": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), 8*time.Second)
				defer cancel()
				asked := 0
				err := waitErased(ctx, &ckpt.ErasedFleet{N: 1}, func(ctx context.Context) (*ckpt.ErasedFleet, error) {
					switch asked++; {
					case asked > 2:
						<-ctx.Done()
						return nil, &ckpt.Error{Code: ckpt.CodeBusy, Message: "it was canceled", Err: ctx.Err()}
					case fails:
						return nil, ckpt.Errorf(ckpt.CodeBusy, failed)
					}
					return &ckpt.ErasedFleet{N: 1, Waiting: []string{"build2"}}, nil
				})
				if err == nil || strings.Contains(err.Error(), "canceled") || strings.Contains(err.Error(), failed) != fails {
					t.Errorf("after %d questions: %v", asked, err)
				}
			})
		})
	}
}
