package host

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db"
	"github.com/ckptsidecar/ckptsidecar/internal/db/journal"
	"github.com/ckptsidecar/ckptsidecar/internal/fleet"
	"github.com/ckptsidecar/ckptsidecar/internal/fleet/pg"
	"github.com/ckptsidecar/ckptsidecar/internal/fleet/seal"
	"github.com/ckptsidecar/ckptsidecar/internal/osfile"
)

// aliveFor is the silence up to which a host counts as alive.
const aliveFor = 2 * time.Minute

// Restore brings the runs of a lost host into an empty database of this host, which no
// daemon may have open. The engine fences the lost host first: it refuses what that
// host still ships. If Restore fails after that, it can be repeated.
func Restore(ctx context.Context, url, host string, force bool, c Config) (*fleet.Restored, error) {
	e, err := pg.Dial(ctx, url)
	if err != nil {
		return nil, err
	}
	defer e.Close()
	lost, err := findLost(ctx, e, host, force)
	if err != nil {
		return nil, err
	}
	o, err := opener(c.ring)
	if err != nil {
		return nil, err
	}
	if err := mustOpenSome(ctx, e, o, lost.DB); err != nil {
		return nil, err
	}
	owner, err := osfile.Controller(filepath.Dir(c.Store.Path))
	if err != nil {
		return nil, err
	}
	var done *fleet.Restored
	err = owner.During(func() error {
		done, err = restoreInto(ctx, e, o, lost, c)
		return err
	})
	return done, err
}

// findLost finds the host by its name or its database, and refuses a host that is
// alive.
func findLost(ctx context.Context, e *pg.Engine, host string, force bool) (*fleet.HostShown, error) {
	all, err := e.Hosts(ctx, "")
	if err != nil {
		return nil, err
	}
	var found []fleet.HostShown
	for _, h := range all.Hosts {
		if h.DB == host || h.Name == host {
			found = append(found, h)
		}
	}
	switch {
	case len(found) == 0:
		return nil, ckpt.Errorf(ckpt.CodeNotFound, "the engine knows no host %s: `ckptsidecar fleet hosts` lists them", host)
	case len(found) > 1:
		return nil, ckpt.Errorf(ckpt.CodeConflict, "%d hosts are named %s: give the database, as `ckptsidecar fleet hosts` lists it", len(found), host)
	case found[0].SeenAgo < aliveFor.Seconds() && found[0].Restored == "" && !force:
		return nil, ckpt.Errorf(ckpt.CodeConflict,
			"host %s was there %.0f s ago: stop its daemon and wait two minutes, or add --force if you know that it is lost",
			found[0].Name, found[0].SeenAgo)
	}
	return &found[0], nil
}

// restoreInto opens the database and fills it.
func restoreInto(ctx context.Context, e *pg.Engine, o *seal.Opener, lost *fleet.HostShown, c Config) (_ *fleet.Restored, err error) {
	store, err := db.Open(ctx, c.Store)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	if err := mustBeEmpty(ctx, e, store, c.Store.Path); err != nil {
		return nil, err
	}
	if by := lost.Restored; by != "" && by != store.FleetID() {
		return nil, ckpt.Errorf(ckpt.CodeConflict, "database %s has the runs of host %s already: restore that one's runs, if it is lost too", by, lost.Name)
	}
	if lost.DB == store.FleetID() {
		return nil, ckpt.Errorf(ckpt.CodeConflict, "this is the database of host %s itself", lost.Name)
	}
	if _, _, err := e.Register(ctx, c.host(store.FleetID())); err != nil {
		return nil, err
	}
	if err := e.Give(ctx, lost.DB, store.FleetID()); err != nil {
		return nil, err
	}
	done := &fleet.Restored{Host: lost.Name, From: lost.DB, Database: c.Store.Path, Uncertain: []fleet.UncertainRun{},
		Damaged: []fleet.DamagedCheckpoint{}}
	return done, bringBack(ctx, e, o, store, identitiesOf(c.Users, store.FleetID()), done)
}

// mustBeEmpty refuses a database that has agents of its own. It accepts agents that an
// interrupted restore has brought.
func mustBeEmpty(ctx context.Context, e *pg.Engine, store *db.Store, path string) error {
	var uids []string
	if err := store.RO.SelectContext(ctx, &uids, `SELECT uid FROM agents`); err != nil || len(uids) == 0 {
		return err
	}
	given, err := e.Lost(ctx, store.FleetID())
	if err != nil {
		return err
	}
	uids = slices.DeleteFunc(uids, func(uid string) bool {
		return slices.ContainsFunc(given, func(a fleet.LostAgent) bool { return a.UID == uid })
	})
	if len(uids) > 0 {
		return ckpt.Errorf(ckpt.CodeConflict,
			"%s is not empty, it has %d agents: restore into a new database (--db FILE), or move this one away first", path, len(uids))
	}
	return nil
}

// bringBack imports the agents of each owner. Two agents of an owner have one name if one of them began anew here after
// a restore that was interrupted. Their runs join the agent that is here.
func bringBack(ctx context.Context, e *pg.Engine, o *seal.Opener, store *db.Store, ids *fleet.Identities, done *fleet.Restored) error {
	agents, err := e.Lost(ctx, store.FleetID())
	if err != nil {
		return err
	}
	for i := range agents {
		agents[i].Owner = ids.Here(agents[i].Principal, agents[i].Owner)
	}
	slices.SortStableFunc(agents, func(a, b fleet.LostAgent) int {
		return cmp.Or(strings.Compare(a.Owner, b.Owner), strings.Compare(a.Name, b.Name))
	})
	agents = opened(o, agents, done)
	for len(agents) > 0 {
		n := 1
		for n < len(agents) && agents[n].Owner == agents[0].Owner && agents[n].Name != agents[n-1].Name {
			n++
		}
		if err := importLost(ctx, e, o, store, agents[:n], done); err != nil {
			return fmt.Errorf("the agents of %s could not be brought back: %w", agents[0].Owner, err)
		}
		agents = agents[n:]
	}
	return nil
}

// opened returns the agents that can be opened. It adds the others to done.Damaged.
func opened(o *seal.Opener, agents []fleet.LostAgent, done *fleet.Restored) (all []fleet.LostAgent) {
	for _, a := range agents {
		if err := o.Agent(&a); err != nil {
			done.Damaged = append(done.Damaged, fleet.DamagedCheckpoint{Kind: "agent", Owner: a.Owner, Agent: a.Name, ID: a.UID, Reason: err.Error()})
			continue
		}
		all = append(all, a)
	}
	return all
}

// importLost imports the agents of one owner.
func importLost(ctx context.Context, e *pg.Engine, o *seal.Opener, store *db.Store, agents []fleet.LostAgent, done *fleet.Restored) error {
	owner := agents[0].Owner
	sc := ckpt.Scope{Caller: ckpt.Caller{Owner: "uid:0", Admin: true, PID: os.Getpid()}, Target: owner,
		Reason: "restored from the fleet's engine, host " + done.Host}
	stays := func(r *fleet.LostRun, why string) error { // in the engine, until the key is here
		r.Damage = why
		return nil
	}
	report, damaged, err := importFilled(ctx, e, o, store, sc, agents, journal.KeepLost(agents), stays)
	if err != nil {
		return err
	}
	done.Agents, done.Runs, done.Checkpoints = done.Agents+len(report.Agents), done.Runs+report.Runs, done.Checkpoints+report.Imported
	done.Damaged = append(done.Damaged, damaged...)
	for _, u := range report.Uncertain {
		done.Uncertain = append(done.Uncertain, fleet.UncertainRun{Owner: owner, Agent: u.Agent, Run: u.Run, Reason: u.Reason})
	}
	return nil
}
