package host

import (
	"context"

	"github.com/google/uuid"

	"github.com/ckptsidecar/ckptsidecar/internal/fleet"
	"github.com/ckptsidecar/ckptsidecar/internal/fleet/pg"
)

// Check returns what an engine is, and whether it is suitable.
func Check(ctx context.Context, url string) (*fleet.Report, error) {
	e, err := pg.Dial(ctx, url)
	if err != nil {
		return nil, err
	}
	defer e.Close()
	return e.Check(ctx)
}

// Migrate makes the fleet's tables in an engine, or brings them up to date. from is the
// version that they had, 0 for none, and to is the version that they have now.
func Migrate(ctx context.Context, url string) (from, to int, err error) {
	e, err := pg.Dial(ctx, url)
	if err != nil {
		return 0, 0, err
	}
	defer e.Close()
	id, err := uuid.NewV7()
	if err != nil {
		return 0, 0, err
	}
	from, err = e.Migrate(ctx, id.String())
	return from, pg.SchemaVersion, err
}

// Hosts lists the hosts of a fleet.
func Hosts(ctx context.Context, url string) (*fleet.Hosts, error) {
	e, err := pg.Dial(ctx, url)
	if err != nil {
		return nil, err
	}
	defer e.Close()
	return e.Hosts(ctx, "")
}

// Runs lists runs of all hosts of a fleet.
func Runs(ctx context.Context, url string, q fleet.RunsQuery) (*fleet.Runs, error) {
	e, err := pg.Dial(ctx, url)
	if err != nil {
		return nil, err
	}
	defer e.Close()
	return e.Runs(ctx, q)
}
