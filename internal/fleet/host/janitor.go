package host

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db/journal"
	"github.com/ckptsidecar/ckptsidecar/internal/fleet"
	"github.com/ckptsidecar/ckptsidecar/internal/fleet/lease"
	"github.com/ckptsidecar/ckptsidecar/internal/fleet/seal"
	"github.com/ckptsidecar/ckptsidecar/internal/periodic"
	"github.com/ckptsidecar/ckptsidecar/internal/retention"
)

// Settings of the janitor.
const (
	janitorMost = 10 * time.Minute // the longest pause between two rounds
	janitorSpan = 3                // for so many rounds no other host becomes the janitor
	// clockTolerance is how far the engine's clock may drift from this host's clock without
	// counting as a jump. It is generous, because an answer can come late, and ages are days.
	clockTolerance = time.Minute
)

// janitor applies the age rules to the runs of hosts that are lost, if this host is the
// janitor of the fleet. It never touches runs of hosts that are alive. It has a connection of
// its own.
type janitor struct {
	after time.Duration // how long a host must have been silent with its lease over
	line
	host        fleet.Host
	lease       *lease.Lease
	incarnation func() int64 // under which this host holds its lease
	keys        func() (*seal.Ring, error)
	note        func(*fleet.CleaningNoted) error // writes a cleaning into the audit log
	log         *slog.Logger

	clock engineClock
	guard *retention.Guard // watches the engine's clock: after a jump, nothing counts as old

	holds   atomic.Bool
	runs    atomic.Int64 // runs that were cleaned since the daemon began
	problem failing
}

// engineClock is the engine's clock as it was last read. Between reads it advances with this
// host's clock.
type engineClock struct {
	read atomic.Pointer[time.Time]
	at   atomic.Int64
}

func (c *engineClock) now() time.Time {
	if read := c.read.Load(); read != nil {
		return read.Add(lease.Boottime() - time.Duration(c.at.Load()))
	}
	return time.Time{}
}

func (c *engineClock) set(now time.Time) {
	c.at.Store(int64(lease.Boottime()))
	c.read.Store(&now)
}

// Run works until ctx ends.
func (j *janitor) Run(ctx context.Context) error {
	defer j.hangUp()
	return periodic.Run(ctx, func(ctx context.Context) time.Duration {
		err := j.round(ctx)
		if ctx.Err() != nil {
			return 0
		}
		j.tell(err)
		if err != nil {
			j.holds.Store(false)
			j.hangUp()
		}
		return j.every()
	})
}

func (j *janitor) every() time.Duration { return min(j.after, janitorMost) }

// round cleans up once, if this host is the janitor and the engine's clock is trusted.
func (j *janitor) round(ctx context.Context) error {
	if !j.lease.Held() {
		j.holds.Store(false)
		return nil
	}
	if err := j.dial(ctx); err != nil {
		return err
	}
	trusted, err := j.readClock(ctx)
	if err != nil {
		return err
	}
	if err := j.noteAll(ctx); err != nil {
		return err
	}
	as := j.as()
	holds, err := j.engine.HoldJanitor(ctx, as)
	j.holds.Store(holds)
	if !holds {
		j.hangUp() // the refused transaction has ended the connection
	}
	if err != nil || !holds || !trusted {
		return err
	}
	hosts, err := j.engine.QuietHosts(ctx, as)
	for i := range hosts {
		if err == nil {
			err = j.judgeHost(ctx, &hosts[i], func(c *fleet.Cleaning) error { return j.clean(ctx, c) })
		}
	}
	return errors.Join(err, j.noteAll(ctx))
}

func (j *janitor) as() fleet.Janitor {
	return fleet.Janitor{DB: j.host.DB, Incarnation: j.incarnation(), Span: janitorSpan * j.every(), After: j.after}
}

// readClock reads the engine's clock, and reports whether ages may be judged by it. They may
// not just after the start, and not soon after the clock has jumped.
func (j *janitor) readClock(ctx context.Context) (trusted bool, err error) {
	now, err := j.engine.Now(ctx)
	if err != nil {
		return false, err
	}
	j.clock.set(now)
	if j.guard == nil {
		j.guard = retention.NewGuard(retention.GuardSettings{
			Hold: j.after, Tolerance: clockTolerance, Wall: j.clock.now, Monotonic: lease.Boottime, Log: j.log})
	}
	return !j.guard.Trusted().IsZero(), nil
}

// judgeHost judges the runs of one lost host. It calls goes for each run of which something
// must be removed.
func (j *janitor) judgeHost(ctx context.Context, h *fleet.QuietHost, goes func(*fleet.Cleaning) error) error {
	agents, err := j.engine.Lost(ctx, h.DB)
	if err != nil {
		return err
	}
	stays, err := j.engine.Disputed(ctx, h.DB)
	if err != nil {
		return err
	}
	o, err := opener(j.keys)
	if err != nil {
		return err
	}
	for len(agents) > 0 { // they are sorted by owner
		n := 1
		for n < len(agents) && agents[n].Owner == agents[0].Owner {
			n++
		}
		c := &cleaner{janitor: j, host: h, opener: o, stays: stays}
		if err := c.owner(ctx, agents[:n], goes); err != nil {
			return err
		}
		agents = agents[n:]
	}
	return nil
}

// cleaner judges the runs of one owner of a lost host.
type cleaner struct {
	*janitor
	host   *fleet.QuietHost
	opener *seal.Opener
	stays  map[string]bool // uids of runs that stay, whatever is removed of them
	forks  map[string]bool // checkpoints that forks need

	of     *fleet.LostAgent
	policy ckpt.Policy
}

// owner judges the runs of one owner. If any of his agents cannot be read, nobody knows which
// checkpoints his runs need, so all of them stay.
func (c *cleaner) owner(ctx context.Context, agents []fleet.LostAgent, goes func(*fleet.Cleaning) error) (err error) {
	for i := range agents {
		if err := c.opener.Agent(&agents[i]); err != nil {
			c.leaves(agents[i].Owner, err)
			return nil
		}
	}
	if c.forks, err = journal.LostForks(agents); err != nil {
		c.leaves(agents[0].Owner, err)
		return nil
	}
	for i := range agents {
		c.of = &agents[i]
		policy, err := journal.LostPolicy(c.of)
		if err != nil {
			c.leaves(c.of.Owner, err)
			continue
		}
		c.policy = agesOnly(policy)
		if err := c.agent(ctx, goes); err != nil {
			return err
		}
	}
	return nil
}

// agent judges the runs of one agent.
func (c *cleaner) agent(ctx context.Context, goes func(*fleet.Cleaning) error) error {
	for i := range c.of.Runs {
		cleaning, err := c.run(ctx, c.of.Runs[i])
		if err == nil && cleaning != nil {
			err = goes(cleaning)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// agesOnly returns a policy without the rules that do not depend on age: only the owner
// applies those.
func agesOnly(p ckpt.Policy) ckpt.Policy {
	p.RoutineKeep, p.PreOperationKeep = 0, 0
	return p
}

func (c *cleaner) leaves(owner string, why error) {
	c.log.Info("the janitor of the fleet leaves alone what it cannot judge",
		"host", c.host.Name, "owner", owner, "reason", why)
}

// run judges a run, first by what is known without its states. If something would be removed,
// it judges the run again with the states, because a checkpoint whose copy in the engine is
// damaged is no rollback target. It returns nil if nothing is to be removed.
func (c *cleaner) run(ctx context.Context, r fleet.LostRun) (*fleet.Cleaning, error) {
	looked := r
	if err := c.engine.FillJudged(ctx, &looked); err != nil {
		return nil, err
	}
	if len(looked.Checkpoints) > 0 && looked.DB != c.host.DB {
		return nil, nil // the run was claimed, and its new owner has not shipped it yet
	}
	c.opener.Run(&looked)
	if c.judge(&looked) == nil {
		return nil, nil
	}
	if err := c.engine.Fill(ctx, &r); err != nil {
		return nil, err
	}
	c.opener.Run(&r)
	markDamaged(&r)
	return c.judge(&r), nil
}

// clean removes what a cleaning of a run names, in one transaction of the engine.
func (j *janitor) clean(ctx context.Context, c *fleet.Cleaning) error {
	err := j.engine.Clean(ctx, j.as(), c)
	if err == nil {
		j.runs.Add(1)
	}
	return err
}

// markDamaged marks checkpoints whose states do not match their hashes.
func markDamaged(r *fleet.LostRun) {
	damaged := map[string]string{}
	journal.CheckLost(r, func(_, id, what string) { damaged[id] = what })
	for i := range r.Checkpoints {
		if what, is := damaged[r.Checkpoints[i].ID]; is && r.Checkpoints[i].Damage == "" {
			r.Checkpoints[i].Damage = what
		}
	}
}

// judge asks retention what of a run must be removed because of its age. It returns nil if
// nothing must.
func (c *cleaner) judge(r *fleet.LostRun) *fleet.Cleaning {
	h, err := journal.LostHistory(r, c.forks)
	if err != nil {
		c.leaves(c.of.Owner, err)
		return nil
	}
	now := c.host.Now()
	cleaning := &fleet.Cleaning{Host: *c.host, Run: *r, Owner: c.of.Owner, Agent: c.of.Name}
	at := map[string]int64{}
	for i := range r.Checkpoints {
		at[r.Checkpoints[i].ID] = r.Checkpoints[i].N
	}
	for _, v := range retention.Plan(h, c.policy, now) {
		if v.Remove {
			cleaning.Gone = append(cleaning.Gone, fleet.Cleaned{ID: v.ID, N: at[v.ID], Reason: v.Reason})
		}
	}
	over := retention.Over(h, c.policy, now)
	cleaning.Drop = over && len(cleaning.Gone) == len(r.Checkpoints) && !c.stays[r.UID]
	if len(cleaning.Gone) == 0 && !cleaning.Drop {
		return nil
	}
	cleaning.Why = "the policy's days are over, and host " + c.host.Name +
		" is lost: the engine has not heard of it for " + c.host.Silent.Round(time.Second).String()
	if cleaning.Drop {
		cleaning.Why = "the run has ended and its time is over; " + cleaning.Why
	}
	cleaning.ID = uuid.NewString()
	return cleaning
}

// noteAll writes into the audit log of this host what it has cleaned. The engine remembers
// what is not noted yet, so if a daemon dies in between, the next one notes it later.
func (j *janitor) noteAll(ctx context.Context) error {
	all, err := j.engine.Unnoted(ctx, j.host.DB)
	if err != nil {
		return err
	}
	for i := range all {
		if err := j.note(&all[i]); err != nil {
			return err
		}
		if err := j.engine.Noted(ctx, j.host.DB, all[i].ID); err != nil {
			return err
		}
	}
	return nil
}

// tell logs a failure if it is new.
func (j *janitor) tell(err error) {
	if j.problem.news(err) {
		j.log.Warn("the janitor of the fleet did not get through; it tries again", "error", err)
	}
}
