package daemon

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db"
	"github.com/ckptsidecar/ckptsidecar/internal/db/journal"
	"github.com/ckptsidecar/ckptsidecar/internal/fleet"
	"github.com/ckptsidecar/ckptsidecar/internal/fleet/pg"
	"github.com/ckptsidecar/ckptsidecar/internal/fleet/seal"
	"github.com/ckptsidecar/ckptsidecar/internal/ipc/server"
)

// claimant brings runs of other hosts to this one, and settles what other hosts have
// left behind here. Each call speaks to the engine on a connection of its own.
type claimant struct {
	url   func() (string, error)
	store *db.Store
	host  fleet.Host
	who   func() *fleet.Identities
	keys  func() (*seal.Ring, error) // nil for a host without keys
}

// fleet is what the server asks of the engine, nil where none is set.
func (s *service) fleet() server.Fleet {
	if s.shipper == nil {
		return nil
	}
	return struct {
		*claimant
		*fleetView
	}{&claimant{url: s.shipper.url, store: s.store, host: s.shipper.host, who: s.shipper.identities, keys: s.shipper.keys}, newFleetView(s.shipper, s.store)}
}

const claimsAndStrands = "claim runs and decide about strands"

// mustAdminister refuses everybody but administrators; what is what they may do.
func mustAdminister(sc ckpt.Scope, what string) error {
	if !sc.Admin {
		return ckpt.Errorf(ckpt.CodeDenied, "only an administrator of this host may %s", what)
	}
	return nil
}

func (c *claimant) dial(ctx context.Context) (*pg.Engine, error) {
	url, err := c.url()
	if err != nil {
		return nil, err
	}
	e, err := pg.Dial(ctx, url)
	if err != nil {
		return nil, &ckpt.Error{Code: ckpt.CodeBusy, Message: "the fleet's engine cannot be reached; nothing was claimed: try again", Err: err}
	}
	if _, _, err := e.Register(ctx, c.host); err != nil {
		e.Close()
		return nil, err
	}
	return e, nil
}

// Claim makes this host the owner of one run of another host, and brings it here as the
// engine holds it. Where it fails after the engine has given the run, the same claim
// again brings it. A user may claim what belongs to his principal.
func (c *claimant) Claim(ctx context.Context, sc ckpt.Scope, r fleet.ClaimRequest) (*fleet.Claimed, error) {
	if r.Force {
		if err := mustAdminister(sc, "claim a run whose host may be alive"); err != nil {
			return nil, err
		}
	}
	if err := ckpt.CheckAgentName(r.Agent); err != nil {
		return nil, err
	}
	e, err := c.dial(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { e.Close() }()
	run, err := c.choose(ctx, e, sc, r)
	if err != nil {
		return nil, err
	}
	term := run.Term
	if run.DB != c.host.DB {
		term, err = e.Claim(ctx, fleet.Claim{Run: run, To: c.host.DB, By: sc.Caller.Owner, Forced: r.Force})
		if pg.IsUnknown(err) {
			again, dialed := c.dial(ctx)
			if dialed != nil {
				return nil, dialed
			}
			e.Close()
			e = again
			term, err = c.claimedAfterAll(ctx, e, run)
		}
		if errors.Is(err, pg.ErrTaken) {
			return nil, ckpt.Errorf(ckpt.CodeConflict, "run %s of %s was not claimed: another host was faster, or its host %s was heard of since; see `ckptsidecar fleet runs --agent %s`",
				run.Run, run.Agent, run.Host, run.Agent)
		}
		if err != nil {
			return nil, err
		}
	}
	return c.takeOver(ctx, e, sc, run, term)
}

// choose finds the one run that a claim may take.
func (c *claimant) choose(ctx context.Context, e *pg.Engine, sc ckpt.Scope, r fleet.ClaimRequest) (*fleet.Claimable, error) {
	all, err := e.Find(ctx, r)
	if err != nil {
		return nil, err
	}
	if all, err = c.allowed(sc, all, r); err != nil {
		return nil, err
	}
	j := journal.New(c.store.Core)
	var found []fleet.Claimable
	var here *fleet.Claimable
	for i := range all {
		run := &all[i]
		same, named, err := j.HasRun(ctx, run.Here, run.Agent, run.Run, run.UID)
		switch {
		case err != nil:
			return nil, err
		case run.DB == c.host.DB && same:
			here = run
			continue
		case run.DB != c.host.DB && same && r.Run != "":
			return nil, ckpt.Errorf(ckpt.CodeConflict, "run %s of %s was claimed from this host, and what this host had of it is still here: decide about it with `ckptsidecar fleet strands`, then delete the run here",
				run.Run, run.Agent)
		case named && !same && r.Run != "":
			return nil, ckpt.Errorf(ckpt.CodeConflict, "%s has a run %s of its own on this host: delete that one, or end it and export it, before you claim the other", run.Agent, run.Run)
		case !same && !named:
			found = append(found, *run)
		}
	}
	switch {
	case len(found) == 0 && here != nil:
		return nil, ckpt.Errorf(ckpt.CodeConflict, "run %s of %s is on this host already", here.Run, here.Agent)
	case len(found) == 0:
		return nil, ckpt.Errorf(ckpt.CodeNotFound, "the engine has no run that fits: `ckptsidecar fleet runs` lists what it has")
	case len(found) > 1:
		return nil, ckpt.Errorf(ckpt.CodeConflict, "%d runs fit: %s: name the run, or add --host or --owner", len(found), candidates(found))
	}
	run := &found[0]
	if run.DB != c.host.DB && run.SeenAgo < fleetAlive.Seconds() && !r.Force {
		return nil, ckpt.Errorf(ckpt.CodeConflict, "host %s, which owns run %s of %s, was there %.0f s ago: stop its daemon and wait two minutes, or add --force if you know that it is lost",
			run.Host, run.Run, run.Agent, run.SeenAgo)
	}
	return run, nil
}

func candidates(runs []fleet.Claimable) string {
	var list []string
	for _, r := range runs {
		list = append(list, fmt.Sprintf("%s/%s of %s on host %s", r.Agent, r.Run, r.Owner, r.Host))
	}
	return strings.Join(list, ", ")
}

// claimedAfterAll finds out what became of a claim whose answer did not come.
func (c *claimant) claimedAfterAll(ctx context.Context, e *pg.Engine, run *fleet.Claimable) (int64, error) {
	all, err := e.Find(ctx, fleet.ClaimRequest{Agent: run.Agent, Run: run.Run, Owner: run.Owner})
	if err != nil {
		return 0, err
	}
	for i := range all {
		if all[i].UID == run.UID && all[i].DB == c.host.DB {
			return all[i].Term, nil
		}
	}
	return 0, &ckpt.Error{Code: ckpt.CodeBusy, Message: fmt.Sprintf("the engine did not say whether run %s was claimed, and it was not: try again", run.Run)}
}

// takeOver brings a run here that the engine has given to this host.
func (c *claimant) takeOver(ctx context.Context, e *pg.Engine, sc ckpt.Scope, run *fleet.Claimable, term int64) (*fleet.Claimed, error) {
	o, err := opener(c.keys)
	if err != nil {
		return nil, err
	}
	agents := []fleet.LostAgent{run.Lost(term)}
	if err := o.Agent(&agents[0]); err != nil {
		return nil, fmt.Errorf("run %s: %w", run.Run, err)
	}
	sc.Target = run.Here
	sc.Reason = reasonWith(sc.Reason, fmt.Sprintf("claimed from host %s of the fleet, database %s, term %d", run.Host, run.DB, term))
	report, _, err := importFilled(ctx, e, o, c.store, sc, agents, journal.KeepRuns(agents))
	if err != nil {
		return nil, fmt.Errorf("the engine has given run %s to this host, and it could not be brought here; claim it again: %w", run.Run, err)
	}
	done := &fleet.Claimed{Owner: run.Here, Agent: run.Agent, Run: run.Run, UID: run.UID, From: run.Host, FromDB: run.DB, Term: term, Checkpoints: report.Imported}
	if len(report.Uncertain) > 0 {
		done.Uncertain = "nobody knows what the run did on host " + run.Host + " after it was shipped last"
	}
	return done, nil
}

// reasonWith adds the reason that a person gave to what happened.
func reasonWith(reason, what string) string {
	if reason == "" {
		return what
	}
	return what + ": " + reason
}

// importFilled imports agents of one owner by the way of an export in a file beside the
// database, so that all that an import checks is checked. It answers what was left out.
func importFilled(ctx context.Context, e *pg.Engine, o *seal.Opener, store *db.Store, sc ckpt.Scope, agents []fleet.LostAgent, kept journal.Kept) (*ckpt.ImportReport, []fleet.DamagedCheckpoint, error) {
	aside, err := os.CreateTemp(filepath.Dir(store.Opt.Path), ".fleet-restore-*")
	if err != nil {
		return nil, nil, err
	}
	defer func() { _, _ = aside.Close(), os.Remove(aside.Name()) }()
	damaged, err := journal.WriteLost(aside, agents, func(r *fleet.LostRun) error {
		err := e.Fill(ctx, r)
		if err == nil {
			o.Run(r)
		}
		return err
	})
	if err != nil {
		return nil, nil, err
	}
	if _, err := aside.Seek(0, 0); err != nil {
		return nil, nil, err
	}
	report, err := store.ImportKept(ctx, sc, aside, kept)
	return report, damaged, err
}

// Strands lists what this host has of runs that other hosts have claimed.
func (c *claimant) Strands(ctx context.Context, sc ckpt.Scope) (*fleet.Strands, error) {
	if err := mustAdminister(sc, claimsAndStrands); err != nil {
		return nil, err
	}
	e, err := c.dial(ctx)
	if err != nil {
		return nil, err
	}
	defer e.Close()
	return c.strands(ctx, e)
}

func (c *claimant) strands(ctx context.Context, e *pg.Engine) (*fleet.Strands, error) {
	taken, err := e.Taken(ctx, c.host.DB)
	if err != nil {
		return nil, err
	}
	j := journal.New(c.store.Core)
	all := &fleet.Strands{Strands: []fleet.Strand{}}
	for i := range taken {
		s, err := j.Strand(ctx, &taken[i])
		if err != nil {
			return nil, err
		}
		if s != nil {
			all.Strands = append(all.Strands, *s)
		}
	}
	return all, nil
}

// Decide adopts a strand into a run of its own, or notes that nobody wants it. Nothing
// is deleted: the fenced run stays until somebody deletes it.
func (c *claimant) Decide(ctx context.Context, sc ckpt.Scope, uid string, d fleet.StrandDecision) (*fleet.StrandDecided, error) {
	if err := mustAdminister(sc, claimsAndStrands); err != nil {
		return nil, err
	}
	if d.Decision != fleet.Adopted && d.Decision != fleet.Dropped {
		return nil, ckpt.Errorf(ckpt.CodeInvalid, "decision must be adopted or dropped; got %q", d.Decision)
	}
	e, err := c.dial(ctx)
	if err != nil {
		return nil, err
	}
	defer e.Close()
	all, err := c.strands(ctx, e)
	if err != nil {
		return nil, err
	}
	for i := range all.Strands {
		s := &all.Strands[i]
		if s.UID != uid {
			continue
		}
		if s.Decided != "" {
			return nil, ckpt.Errorf(ckpt.CodeConflict, "this strand of run %s was %s by %s already", s.Run, s.Decided, s.DecidedBy)
		}
		done := &fleet.StrandDecided{Strand: *s}
		if d.Decision == fleet.Adopted {
			if err := c.adopt(ctx, sc, done, d.Run); err != nil {
				return nil, err
			}
		}
		done.Decided, done.DecidedBy = d.Decision, sc.Caller.Owner
		return done, e.Decide(ctx, c.host.DB, &s.Taken, d.Decision, sc.Caller.Owner)
	}
	return nil, ckpt.Errorf(ckpt.CodeNotFound, "this host has no strand of run %s: `ckptsidecar fleet strands` lists them", uid)
}

// adopt saves the strand's newest state as the first checkpoint of another run. The
// same again answers the same checkpoint.
func (c *claimant) adopt(ctx context.Context, sc ckpt.Scope, s *fleet.StrandDecided, into string) error {
	if s.Newest == "" {
		return ckpt.Errorf(ckpt.CodeConflict, "run %s has no checkpoint in this strand that could be adopted: drop it", s.Run)
	}
	if into == "" {
		into = fleet.AdoptedName(s.Run, s.Term)
	}
	sc.Target = s.Owner
	sc.Reason = reasonWith(sc.Reason, fmt.Sprintf("adopted from the strand of run %s, which host %s has claimed", s.Run, s.Host))
	from, err := c.store.Checkpoint(ctx, sc, s.Newest, true)
	if err != nil {
		return err
	}
	saved, err := c.store.Save(ctx, sc, &ckpt.SaveRequest{Agent: s.Agent, Run: into, Kind: ckpt.KindRecovery, ContentType: from.ContentType,
		State: bytes.Clone(from.State), ForkFrom: ckpt.Ref(from.ID), IdempotencyKey: "fleet-strand-" + s.UID + "-" + into})
	if err != nil {
		return err
	}
	s.Into, s.Checkpoint = into, saved.ID
	return nil
}
