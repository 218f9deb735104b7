package host

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db"
	"github.com/ckptsidecar/ckptsidecar/internal/db/journal"
	"github.com/ckptsidecar/ckptsidecar/internal/fleet"
	"github.com/ckptsidecar/ckptsidecar/internal/fleet/pg"
	"github.com/ckptsidecar/ckptsidecar/internal/fleet/seal"
)

// Claim makes this host the owner of one run of another host, and brings the run here as
// the engine holds it. If it fails after the engine has given the run to this host, the
// caller can repeat the same claim to bring it. A user may claim what belongs to his
// principal.
func (c *claimant) Claim(ctx context.Context, sc ckpt.Scope, r fleet.ClaimRequest) (_ *fleet.Claimed, err error) {
	defer func() { err = c.engineFailed(ctx, sc, err) }()
	if r.Force {
		if err := mustAdminister(sc, "claim a run whose host may be alive"); err != nil {
			return nil, err
		}
	}
	if err := ckpt.CheckAgentName(r.Agent); err != nil {
		return nil, err
	}
	asked, err := c.turns.asks.take(ctx)
	if err != nil {
		return nil, err
	}
	defer asked()
	e, err := c.dial(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { e.Close() }()
	run, done, err := c.chooseAlone(ctx, e, sc, r)
	if err != nil {
		return nil, err
	}
	defer done()
	partly, hint := c.mayLose(sc, run, r.Force)
	if _, err := c.mustOpen(ctx, e, sc, run, partly, hint); err != nil {
		return nil, err
	}
	e, run, err = c.take(ctx, e, sc, run, run.Ground(c.grace, r.Force))
	if err != nil {
		return nil, err
	}
	asked()
	return c.takeOver(ctx, e, sc, run, partly)
}

// mayLose reports whether force lets a claim go on although a key of the run is missing. It does
// so only if the claim needs force for nothing else: who forces a claim from a host that may live
// need not know about the key. hint tells an administrator of this.
func (c *claimant) mayLose(sc ckpt.Scope, run *fleet.Claimable, force bool) (partly bool, hint string) {
	if run.DB != c.host.DB && (run.Takeover == string(ckpt.TakeoverNever) || run.Ground(c.grace, false) == "") {
		return false, ""
	}
	return force, hintIf(sc.Admin, "; if the key is lost, add --force: what it has sealed is lost then", "")
}

// take asks the engine for a run, unless this host has it already. It returns the run as
// the engine has it after the claim: what the former owner still had under way is either
// committed before the claim, or refused. It may return another connection than the one
// it got.
func (c *claimant) take(ctx context.Context, e *pg.Engine, sc ckpt.Scope, run *fleet.Claimable,
	ground fleet.Ground) (*pg.Engine, *fleet.Claimable, error) {
	was := *run
	if run.DB != c.host.DB {
		if err := c.allShipped(ctx); err != nil {
			return e, nil, err
		}
		if ground != fleet.GroundForced {
			if err := healed(ctx, e, run); err != nil {
				return e, nil, err
			}
		}
		_, err := e.Claim(ctx, fleet.Claim{Run: run, To: c.host.DB, By: sc.Caller.Owner, Ground: ground, Grace: c.grace})
		if pg.IsUnknown(err) {
			again, dialed := c.dial(ctx)
			if dialed != nil {
				return e, nil, dialed
			}
			e.Close()
			e, err = again, nil
		}
		if errors.Is(err, pg.ErrTaken) {
			return e, nil, &ckpt.Error{Code: ckpt.CodeConflict, RetryAfter: time.Second, Message: fmt.Sprintf(
				"run %s of %s was not claimed: another host was faster, or its host %s was heard of since; see `ckptsidecar fleet runs --agent %s`",
				run.Run, run.Agent, run.Host, run.Agent)}
		}
		if err != nil {
			return e, nil, err
		}
	}
	now, err := c.mine(ctx, e, run)
	if err != nil {
		return e, nil, err
	}
	c.told.Store("")
	if c.learn != nil {
		if err := c.learn(ctx, e, fleet.RunName(was.Here, was.Agent, was.Run)); err != nil {
			return e, nil, err
		}
	}
	now.Here, now.Host, now.DB, now.SeenAgo = was.Here, was.Host, was.DB, was.SeenAgo
	if was.DB == c.host.DB && now.FromDB != "" { // it was given to this host before, and could not be brought
		now.Host, now.DB, now.SeenAgo = now.FromHost, now.FromDB, now.FromSilent
	}
	now.Sure = now.How == fleet.HowReleased && now.Status != string(ckpt.RunRunning) // an agent may go on on a drained host
	return e, now, nil
}

// durableFleet reports whether the policy in the line of an agent keeps every effect in
// the engine before the agent goes on.
func durableFleet(line string) bool {
	var agent struct {
		Policy ckpt.Policy `json:"policy"`
	}
	err := json.Unmarshal([]byte(line), &agent)
	return err == nil && agent.Policy.Durability == ckpt.DurabilityFleet && agent.Policy.OnOutage == ckpt.OutageRefuse
}

// allShipped waits until the engine has everything that this host has committed so far.
// Otherwise this host could still ship a row about a run of the same name, for example a
// removal, and the engine would apply it to the run that is claimed.
func (c *claimant) allShipped(ctx context.Context) error {
	if c.shipped == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, shipTimeout)
	defer cancel()
	if err := c.shipped(ctx, c.store.Committed()); err != nil {
		return ckpt.Wrap(ckpt.CodeBusy, err, "this host has not shipped everything of its own yet; nothing was claimed: try again")
	}
	return nil
}

// shipTimeout is how long a claim waits for this host's own shipping.
const shipTimeout = 10 * time.Second

// chooseAlone finds the one run that a claim may take, and takes its turn. It refuses a run
// that another call brings here.
func (c *claimant) chooseAlone(ctx context.Context, e *pg.Engine, sc ckpt.Scope, r fleet.ClaimRequest) (*fleet.Claimable, func(), error) {
	run, err := c.choose(ctx, e, sc, r)
	if err != nil {
		return nil, nil, err
	}
	name := fleet.RunName(run.Here, run.Agent, run.Run)
	done, _ := c.turns.try(name)
	if done == nil {
		return nil, nil, &ckpt.Error{Code: ckpt.CodeBusy, RetryAfter: time.Second,
			Message: fmt.Sprintf("run %s of %s is brought here just now: try again", run.Run, run.Agent)}
	}
	again, err := c.choose(ctx, e, sc, r) // another call may have ended in between
	if err == nil && fleet.RunName(again.Here, again.Agent, again.Run) != name {
		err = noTurn()
	}
	if err != nil {
		done()
		return nil, nil, err
	}
	return again, done, nil
}

// choose finds the one run that a claim may take.
func (c *claimant) choose(ctx context.Context, e *pg.Engine, sc ckpt.Scope, r fleet.ClaimRequest) (*fleet.Claimable, error) {
	if !sc.Admin {
		r.Principal = c.who().Principal(sc.Owner)
	}
	all, err := e.Find(ctx, r)
	if err != nil {
		return nil, err
	}
	all, sealed, err := c.allowed(sc, all)
	if err != nil {
		return nil, err
	}
	if len(all) == 0 && len(sealed) > 0 && sc.Admin {
		return nil, keyMissing(sc, &sealed[0], sealed[0].KeyID, "")
	}
	j := journal.New(c.store.Core)
	var found []fleet.Claimable
	var here *fleet.Claimable
	var clash error // why the first run that would fit otherwise cannot come here
	for i := range all {
		run := &all[i]
		var refused error
		same, named, err := j.HasRun(ctx, run.Here, run.Agent, run.Run, run.UID)
		switch {
		case err != nil:
			return nil, err
		case run.DB == c.host.DB && same:
			here = run
			continue
		case same:
			refused = ckpt.Errorf(ckpt.CodeConflict,
				"run %s of %s was claimed from this host, and what this host had of it is still here: %s", run.Run, run.Agent, keepOrDelete(run.Agent, run.Run))
		case named:
			refused = ckpt.Errorf(ckpt.CodeConflict,
				"%s has a run %s of its own on this host: delete that one (export it first, if you need it) before you claim the other", run.Agent, run.Run)
		default:
			found = append(found, *run)
		}
		if refused != nil && r.Run != "" {
			return nil, refused
		}
		clash = cmp.Or(clash, refused)
	}
	switch {
	case len(found) == 0 && clash != nil:
		return nil, clash
	case len(found) == 0 && here != nil:
		return nil, ckpt.Errorf(ckpt.CodeConflict, "run %s of %s is on this host already", here.Run, here.Agent)
	case len(found) == 0:
		return nil, ckpt.Errorf(ckpt.CodeNotFound, "the engine has no run that fits: `ckptsidecar fleet runs` lists what it has")
	case len(found) > 1:
		return nil, ckpt.Errorf(ckpt.CodeConflict, "%d runs fit: %s: name the run, or add --host or --owner", len(found), candidates(found))
	}
	run := &found[0]
	switch {
	case run.DB == c.host.DB, r.Force:
	case run.Takeover == string(ckpt.TakeoverNever):
		return nil, ckpt.Errorf(ckpt.CodeConflict, "the policy of %s says takeover: never%s", run.Agent,
			hintIf(sc.Admin, ": add --force if you know that host "+run.Host+" is lost", ": an administrator may claim the run"))
	case run.Ground(c.grace, false) == "":
		return nil, c.stillOwned(run, hintIf(sc.Admin, "; or add --force if you know that it is lost", ""))
	}
	return run, nil
}

// hintIf returns the hint for an administrator, or the one for others, who may force nothing.
func hintIf(admin bool, hint, other string) string {
	if admin {
		return hint
	}
	return other
}

// stillOwned says why a run cannot be claimed yet, and what else the caller can do.
func (c *claimant) stillOwned(run *fleet.Claimable, hint string) error {
	wait := run.Wait(c.grace)
	how := fmt.Sprintf("was there %.0f s ago: stop its daemon and wait two minutes", run.SeenAgo)
	if run.Lease != nil {
		how = fmt.Sprintf("holds its lease: run `ckptsidecar fleet release` or `fleet drain` there, or stop its daemon and wait %.0f s", wait.Seconds())
	}
	return &ckpt.Error{Code: ckpt.CodeConflict, RetryAfter: wait, Host: run.Host,
		Message: fmt.Sprintf("host %s, which owns run %s of %s, %s%s", run.Host, run.Run, run.Agent, how, hint)}
}

func candidates(runs []fleet.Claimable) string {
	var list []string
	for _, r := range runs {
		list = append(list, fmt.Sprintf("%s/%s of %s on host %s", r.Agent, r.Run, r.Owner, r.Host))
	}
	return strings.Join(list, ", ")
}

// mine returns a run that the engine has given to this host, as it is now.
func (c *claimant) mine(ctx context.Context, e *pg.Engine, run *fleet.Claimable) (*fleet.Claimable, error) {
	all, err := e.Find(ctx, fleet.ClaimRequest{Agent: run.Agent, UID: run.UID})
	if err != nil {
		return nil, err
	}
	for i := range all {
		if all[i].DB == c.host.DB {
			return &all[i], nil
		}
	}
	return nil, &ckpt.Error{Code: ckpt.CodeBusy,
		Message: fmt.Sprintf("the engine did not say whether run %s was claimed, and it was not: try again", run.Run)}
}

// takeOver brings a run to this host that the engine has given to it. With partly it leaves out
// what does not open here because a key is missing.
func (c *claimant) takeOver(ctx context.Context, e *pg.Engine, sc ckpt.Scope, run *fleet.Claimable, partly bool) (*fleet.Claimed, error) {
	o, err := opener(c.keys)
	if err != nil {
		return nil, err
	}
	agent, err := openAgent(o, sc, run, "")
	if err != nil {
		return nil, err
	}
	agents := []fleet.LostAgent{*agent}
	run.Sure = run.Sure || durableFleet(agents[0].Doc)
	agents[0].Runs[0].Sure = run.Sure
	e, done, err := c.toBring(ctx, e, run)
	if err != nil {
		return nil, err
	}
	defer done()
	sc.Target = run.Here
	sc.Reason = reasonWith(sc.Reason, fmt.Sprintf("claimed from host %s of the fleet, database %s, term %d", run.Host, run.DB, run.Term))
	lacks := func(_ *fleet.LostRun, why string) error { return unopened(sc, run, why, "") }
	if partly {
		lacks = nil
	}
	report, damaged, err := importFilled(ctx, e, o, c.store, sc, agents, lacks)
	if err != nil {
		return nil, fmt.Errorf("the engine has given run %s to this host, and it could not be brought here; claim it again: %w", run.Run, err)
	}
	claimed := &fleet.Claimed{Owner: run.Here, Agent: run.Agent, Run: run.Run, UID: run.UID, From: run.Host, FromDB: run.DB,
		Term: run.Term, Checkpoints: report.Imported, Damaged: damaged}
	if len(report.Uncertain) > 0 {
		claimed.Uncertain = "nobody knows what the run did on host " + run.Host + " after it was shipped last"
	}
	return claimed, nil
}

// reasonWith appends the reason that a person gave to a description of what happened.
func reasonWith(reason, what string) string {
	if reason == "" {
		return what
	}
	return what + ": " + reason
}

// importFilled imports agents of one owner. It writes them as an export into a file
// beside the database, so that the import makes all of its usual checks. It returns what
// was left out. lacks is called for a run of which a key is missing; if it is nil, what
// does not open is left out.
func importFilled(ctx context.Context, e *pg.Engine, o *seal.Opener, store *db.Store, sc ckpt.Scope, agents []fleet.LostAgent,
	lacks func(r *fleet.LostRun, why string) error) (*ckpt.ImportReport, []fleet.DamagedCheckpoint, error) {
	aside, err := os.CreateTemp(filepath.Dir(store.Opt.Path), ".fleet-claim-*")
	if err != nil {
		return nil, nil, err
	}
	defer func() { _, _ = aside.Close(), os.Remove(aside.Name()) }()
	damaged, err := journal.WriteLost(aside, agents, func(r *fleet.LostRun) error {
		if err := e.Fill(ctx, r); err != nil {
			return err
		}
		o.Run(r)
		if why := seal.Lacks(r); why != "" && lacks != nil {
			return lacks(r, why)
		}
		return nil
	})
	if err != nil {
		return nil, nil, err
	}
	if _, err := aside.Seek(0, 0); err != nil {
		return nil, nil, err
	}
	report, err := store.ImportKept(ctx, sc, aside, journal.KeepRuns(agents))
	if err != nil {
		return nil, nil, err
	}
	var uids []string
	for i := range agents {
		for j := range agents[i].Runs {
			uids = append(uids, agents[i].Runs[j].UID)
		}
	}
	return report, damaged, store.InterruptMoved(ctx, uids, sc.Reason)
}

// takenFrom returns the runs of this host that other hosts have claimed.
func (c *claimant) takenFrom(ctx context.Context, e *pg.Engine) ([]fleet.Taken, error) {
	taken, err := e.Taken(ctx, c.host.DB)
	if err != nil || c.remember == nil {
		return taken, err
	}
	return c.remember(ctx, e, taken)
}
