package supervise

import (
	"context"
	"fmt"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/cli"
	"github.com/ckptsidecar/ckptsidecar/internal/cli/view"
	"github.com/ckptsidecar/ckptsidecar/internal/fleet/lease"
)

// news is an event that the beater reports and that the supervisor must react to.
type news struct {
	event, why string
	within     time.Duration // for newsLease: when to kill the child
}

const (
	newsFrozen = "frozen"
	newsFenced = "fenced"
	newsDrift  = "drift"
	newsLease  = "lease"
	newsBack   = "went_back"
)

// beater tells the daemon that the child is alive, as long as the child lives and is not
// stopped. It also checks what the daemon knows about the run.
//
// A heartbeat only says that the process exists. The child itself reports progress:
// progress_timeout finds a child that is alive and makes no progress.
type beater struct {
	*supervisor
	child    *child
	news     chan news
	lastBeat time.Time // the last heartbeat that the daemon accepted
	away     bool      // whether the daemon was away at the last report
	paused   bool      // the child was seen stopped since the last heartbeat
	told     bool      // news was sent
	spared   bool      // it was reported that the child is frozen and that exec does not kill it

	lease hostLease
}

// leaseLook is how often the end of the lease is checked. A timer would stand still while
// the machine sleeps.
const leaseLook = 250 * time.Millisecond

// hostLease is how long this host may still act for the run, as the daemon reported last.
// A host without a fleet has none, and an agent that continues after a lost lease needs
// none.
type hostLease struct {
	counts bool
	until  time.Duration // by lease.Boottime
	next   time.Duration // when to ask again
	every  time.Duration
	most   time.Duration // the longest time that was heard of
}

// heard reads the lease from the answer to a request that was sent at a moment.
func (l *hostLease) heard(run *ckpt.Run, sent time.Duration) {
	l.counts = run.Lease != "" && run.OnLeaseLost == ckpt.LeaseLostStop
	left := time.Duration(run.LeaseLeftMS) * time.Millisecond
	l.until = sent + left
	l.most = max(l.most, left)
	l.every = max(leaseLook, left/4)
	l.next = sent + l.every
}

// grace returns how long the child may take to stop when the lease is over. A host gives up
// its lease when a fifth of it is left, so the child ends before other hosts may claim, also
// with the shortest lease.
func (l *hostLease) grace() time.Duration { return min(leaseGrace, l.most/4) }

// over reports whether the host may have lost the run.
func (l *hostLease) over(now time.Duration) bool { return l.counts && now >= l.until }

// run sends a heartbeat at once and then regularly, until ctx ends.
func (b *beater) run(ctx context.Context) {
	every := time.Duration(b.cmd.Heartbeat)
	tick := time.NewTicker(every)
	defer tick.Stop()
	look := time.NewTicker(leaseLook)
	defer look.Stop()
	for {
		b.presence(ctx, b.beatInTime(ctx, max(every, 5*time.Second), look.C))
		for waits := true; waits; {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				waits = false
			case <-look.C:
				waits = !b.renewals()
			}
		}
	}
}

// beatInTime sends a heartbeat. It gives up when the lease ends: a daemon that hangs must
// not delay the end of the command.
func (b *beater) beatInTime(ctx context.Context, limit time.Duration, look <-chan time.Time) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	held, done := b.lease, make(chan error, 1)
	go func() { done <- b.beat(ctx) }()
	for {
		select {
		case err := <-done:
			return err
		case <-look:
			if held.over(lease.Boottime()) {
				cancel()
			}
		}
	}
}

// renewals checks whether the lease is over. It returns whether it is time for a
// heartbeat, so that the beater learns of the daemon's next renewal before the lease
// ends.
func (b *beater) renewals() (beat bool) {
	now := lease.Boottime()
	if b.lease.over(now) {
		b.send(news{newsLease, "this host may have lost the run to another host (its lease in the fleet is over): stopping this command", b.lease.grace()})
	}
	if !b.lease.counts || b.told || now < b.lease.next {
		return false
	}
	b.lease.next = now + b.lease.every
	return true
}

// beat reads the run first, because a heartbeat would undo its timeout.
func (b *beater) beat(ctx context.Context) error {
	sent := lease.Boottime()
	run, err := b.client.Run(ctx, b.ref(nil))
	if err != nil {
		return err
	}
	switch {
	case run.Ownership == ckpt.OwnershipFenced:
		b.send(news{event: newsFenced, why: fmt.Sprintf("host %s of the fleet has claimed run %s (term %d): stopping this command",
			run.Host, run.Run, run.Term)})
		return nil
	case run.Epoch < b.epoch:
		b.send(news{event: newsBack, why: wentBack(run, b.epoch)})
		return nil
	case run.Epoch != b.epoch && !b.adopt(b.child, run):
		b.send(news{event: newsFenced, why: fmt.Sprintf("run %s was taken over (epoch %d, by process %d): stopping this command; "+
			"see: ckptsidecar runs %s", run.Run, run.Epoch, run.PID, run.Agent)})
		return nil
	}
	if run.Lease != "" { // an older daemon tells it with heartbeats only
		b.lease.heard(run, sent)
	}
	stopped := b.child.stopped()
	b.paused = b.paused || stopped
	switch {
	case run.Status == ckpt.RunTimedOut && b.hangs(stopped):
		b.hung()
		return nil
	case endedByOwner(run):
		b.lease.counts = false // the agent has let go of the run, so no other host takes it away
		return nil
	case stopped:
		return nil
	}
	sent = lease.Boottime()
	if run, err = b.client.Beat(ctx, b.ref(&b.epoch), ckpt.Heartbeat{PID: run.PID}); err != nil {
		if ckpt.CodeOf(err) == ckpt.CodeFenced || ckpt.CodeOf(err) == ckpt.CodeConflict { // it just changed: the next look shows how
			return nil
		}
		return err
	}
	b.lastBeat, b.paused = time.Now(), false
	b.lease.heard(run, sent)
	why, err := b.criticalDrift(ctx, run)
	if why != "" {
		b.send(news{event: newsDrift, why: why})
	}
	return err
}

// wentBack says why the daemon knows less of a run than this process. Epochs only rise, so nobody
// has taken the run over.
func wentBack(run *ckpt.Run, epoch int64) string {
	return fmt.Sprintf("run %s is at epoch %d and this command is of epoch %d, so an older database was put back, or the run was deleted",
		run.Run, run.Epoch, epoch)
}

// adopt accepts a new epoch if the child itself, or one of its children, has resumed the
// run again.
func (s *supervisor) adopt(c *child, run *ckpt.Run) bool {
	pid := run.PIDHere
	if pid == 0 && (c.told == 0 || c.told == c.owner()) {
		pid = run.PID // the daemon counts as this process does
	}
	if run.Epoch < s.epoch || !c.owns(pid) && (run.PID == 0 || run.PID != c.told) {
		return false
	}
	s.epoch = run.Epoch
	return true
}

// hangs reports whether a timeout is the child's fault. It is not if this process could
// not send heartbeats in time, or if the child was stopped and continues: in both cases,
// a heartbeat fixes the status.
func (b *beater) hangs(stopped bool) bool {
	late := b.cmd.HeartbeatTimeout > 0 && time.Since(b.lastBeat) >= time.Duration(b.cmd.HeartbeatTimeout)
	return stopped || !late && !b.paused
}

func (b *beater) hung() {
	if b.cmd.Restart != restartNever {
		b.send(news{event: newsFrozen, why: "the command is frozen (the run timed out): killing it"})
		return
	}
	if !b.spared {
		b.spared = true
		b.supervisor.note(newsFrozen,
			"the command is frozen (the run timed out); with --restart %s exec does not kill it: end it with kill %d", restartNever, b.child.pid())
	}
}

func (b *beater) send(n news) {
	if !b.told {
		b.told = true
		b.news <- n
	}
}

// presence reports once when the daemon goes away, and once when it is back.
func (b *beater) presence(ctx context.Context, err error) {
	switch {
	case ctx.Err() != nil:
	case err != nil && !b.away:
		b.away = true
		b.supervisor.note("daemon_away", "the heartbeat failed: %s; the command continues", cli.MessageOf(err))
	case err == nil && b.away:
		b.away = false
		b.supervisor.note("daemon_back", "the daemon answers again")
	}
}

// criticalDrift returns why the run must go back, "" if it need not. Only findings that
// make checkpoints suspect count. For example, a damaged checkpoint is critical too, but
// a restart does not help.
func (b *beater) criticalDrift(ctx context.Context, run *ckpt.Run) (string, error) {
	if b.cmd.Restart != restartDrift || run.Drift == nil || run.Drift.Verdict != ckpt.SeverityCritical {
		return "", nil
	}
	report, err := b.client.Drift(ctx, ckpt.DriftFilter{Agent: run.Agent, Run: run.Run, Limit: ckpt.MaxLimit})
	if err != nil {
		return "", err
	}
	for i := range report.Findings {
		if f := &report.Findings[i]; view.CoversCheckpoints(*f) {
			return fmt.Sprintf("critical drift: stopping the command and going back: %s: %s", f.Rule, f.Message), nil
		}
	}
	return "", nil
}

// endedByOwner reports whether the owner, and not the monitor, set the status of a run.
func endedByOwner(run *ckpt.Run) bool {
	switch run.Status {
	case ckpt.RunRunning, ckpt.RunStarting, ckpt.RunTimedOut:
		return false
	case ckpt.RunInterrupted:
		return run.PID == 0 // an owner that reports it itself gives up the run
	}
	return true
}

// The values of --restart.
const (
	restartNever = "never"
	restartDrift = "on-drift"
)
