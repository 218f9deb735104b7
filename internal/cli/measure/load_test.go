package measure

import (
	"context"
	"errors"
	"testing"
	"time"
)

// TestLoadStopsWithItsContext: the load stops even if a task does not check its
// context, like the bare log.
func TestLoadStopsWithItsContext(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	tasks := 0
	_, err := Load{Clients: 1, During: time.Hour, Most: 1000}.Run(ctx, func(int) (Task, error) {
		return func(context.Context) (time.Duration, error) {
			if tasks++; tasks == 3 {
				stop()
			}
			return 0, nil
		}, nil
	})
	if !errors.Is(err, context.Canceled) || tasks != 3 {
		t.Errorf("%d tasks, %v", tasks, err)
	}
}
