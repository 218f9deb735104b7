package host

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/google/uuid"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db"
	"github.com/ckptsidecar/ckptsidecar/internal/db/journal"
	"github.com/ckptsidecar/ckptsidecar/internal/fleet"
	"github.com/ckptsidecar/ckptsidecar/internal/fleet/pg"
	"github.com/ckptsidecar/ckptsidecar/internal/osfile"
)

// Rejoin gives the database of this host another id in the fleet. No daemon may have
// the database open. Rejoin refuses a database whose history agrees with the engine's,
// unless force is set: a copy of a virtual machine may not have shipped anything yet.
func Rejoin(ctx context.Context, url string, force bool, c Config) (*fleet.Rejoined, error) {
	if _, err := os.Stat(c.Store.Path); errors.Is(err, fs.ErrNotExist) {
		return nil, ckpt.Errorf(ckpt.CodeNotFound, "there is no database %s: name one with --db, or with --system the system service's", c.Store.Path)
	}
	e, err := pg.Dial(ctx, url)
	if err != nil {
		return nil, err
	}
	defer e.Close()
	owner, err := osfile.Controller(filepath.Dir(c.Store.Path))
	if err != nil {
		return nil, err
	}
	var done *fleet.Rejoined
	err = owner.During(func() error {
		done, err = rejoin(ctx, e, force, c)
		return err
	})
	return done, err
}

func rejoin(ctx context.Context, e *pg.Engine, force bool, c Config) (_ *fleet.Rejoined, err error) {
	store, err := db.Open(ctx, c.Store)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	former := store.FleetID()
	common, split, err := lastCommon(ctx, e, journal.New(store.Core), former)
	if err != nil {
		return nil, err
	}
	if !split && !force {
		return nil, ckpt.Errorf(ckpt.CodeConflict,
			"the engine and this database have the same past: there is nothing to settle; add --force if another machine has a copy of this database")
	}
	id, err := uuid.NewV7()
	if err != nil {
		return nil, err
	}
	host := c.host(id.String())
	if err := e.Rejoin(ctx, host, former, common); err != nil {
		return nil, err
	}
	why := fmt.Sprintf("the fleet's engine has another past of this database after row %d", common)
	return &fleet.Rejoined{From: former, To: host.DB, Common: common}, store.SetFleetID(host.DB, why)
}

// lastCommon returns the last row that the database's audit log and the engine's copy
// of it have in common, and whether their histories differ after it.
func lastCommon(ctx context.Context, e *pg.Engine, j *journal.Journal, id string) (n int64, split bool, err error) {
	mark, err := e.MarkOf(ctx, id)
	if errors.Is(err, sql.ErrNoRows) {
		return 0, false, ckpt.Errorf(ckpt.CodeConflict, "the engine does not know this database (%s): there is nothing to settle, and its daemon joins by itself", id)
	}
	if err != nil {
		return 0, false, err
	}
	head, here, err := j.Where(ctx, mark.N)
	if err != nil {
		return 0, false, err
	}
	if fleet.Compare(mark, fleet.Mark{}, head, here) != fleet.Split {
		return mark.N, false, nil
	}
	low, high := int64(0), min(mark.N, head.N) // the histories agree at low, and differ after high
	for low < high {
		middle := (low + high + 1) / 2
		there, err := e.HashAt(ctx, id, middle)
		if err != nil {
			return 0, false, err
		}
		_, here, err := j.Where(ctx, middle)
		if err != nil {
			return 0, false, err
		}
		if there != "" && here != "" && there != here {
			high = middle - 1
		} else {
			low = middle
		}
	}
	return low, true, nil
}
