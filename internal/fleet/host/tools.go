package host

import (
	"context"
	"errors"
	"slices"

	"github.com/google/uuid"

	ckpt "github.com/ckptsidecar/ckptsidecar"
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

// AcceptBack lets the hosts of a fleet claim by themselves again after the engine went back.
func AcceptBack(ctx context.Context, url string) error {
	e, err := pg.Dial(ctx, url)
	if err != nil {
		return err
	}
	defer e.Close()
	return e.AcceptBack(ctx)
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

// Forget notes in an engine that a host is gone for good, so that no erasure waits for it. It refuses a host that has
// runs in the engine, unless they may be deleted.
func Forget(ctx context.Context, url, name string, deleteRuns bool) (*fleet.HostShown, error) {
	e, err := pg.Dial(ctx, url)
	if err != nil {
		return nil, err
	}
	defer e.Close()
	all, err := e.Hosts(ctx, "")
	if err != nil {
		return nil, err
	}
	fit := slices.DeleteFunc(all.Hosts, func(h fleet.HostShown) bool { return h.Name != name && h.DB != name })
	switch {
	case len(fit) == 0:
		return nil, ckpt.Errorf(ckpt.CodeNotFound, "the engine has no host %s: `ckptsidecar fleet hosts` lists the hosts", name)
	case len(fit) > 1:
		return nil, ckpt.Errorf(ckpt.CodeConflict, "%d hosts are named %s: give the database of one of them, which `ckptsidecar fleet hosts` shows", len(fit), name)
	}
	h := &fit[0]
	switch silent := fleet.SilentFor.Seconds(); {
	case h.SeenAgo <= silent || h.Lease != nil && *h.Lease > 0:
		return nil, ckpt.Errorf(ckpt.CodeConflict, "host %s is not gone: the engine heard of it %.0f s ago; stop its daemon, and wait until the host is silent for %.0f s "+
			"and its lease is over", h.Name, h.SeenAgo, silent)
	case h.Runs > 0 && !deleteRuns:
		return nil, ckpt.Errorf(ckpt.CodeConflict, "the engine has %d runs of host %s: bring them here with `ckptsidecar fleet claim --host %s --all`, "+
			"or add --delete-runs to delete them from the engine", h.Runs, h.Name, name)
	}
	err = e.Forget(ctx, h.DB, deleteRuns, fleet.SilentFor)
	if errors.Is(err, pg.ErrMoved) {
		return nil, ckpt.Errorf(ckpt.CodeConflict, "host %s has just come back: it was not forgotten", h.Name)
	}
	return h, err
}
