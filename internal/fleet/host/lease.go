package host

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ckptsidecar/ckptsidecar/internal/fleet"
	"github.com/ckptsidecar/ckptsidecar/internal/fleet/lease"
	"github.com/ckptsidecar/ckptsidecar/internal/fleet/pg"
	"github.com/ckptsidecar/ckptsidecar/internal/periodic"
)

// keeper renews this host's lease. It has a connection of its own and never waits for a
// batch. A batch of many megabytes, or one that waits for a lock, can take longer than a
// lease, so a renewal between two batches would come too late.
type keeper struct {
	line
	host  fleet.Host
	lease *lease.Lease
	grace time.Duration // how much longer this host waits before it claims; only for the status
	log   *slog.Logger
	// heed runs a renewal, and learns from its answer which runs of this host other hosts
	// own.
	heed    func(context.Context, *pg.Engine, func(context.Context) ([]fleet.Taken, error)) error
	renewed func() // is called after each renewal
	// hindered returns why this host must not hold a lease, nil if it may.
	hindered func() error

	healer      *healer // notices that the engine went back; nil for no check
	begun       bool    // this daemon has held the lease
	incarnation int64   // the last incarnation that the engine gave, or may have given

	asked    chan struct{} // is closed when the engine was asked once
	askOnce  sync.Once
	last     atomic.Int64             // the incarnation, for calls that drain this host
	draining atomic.Bool              // this host has let go of its runs
	noticed  atomic.Pointer[[]string] // hosts that have found that the engine went back, for the status
	letting  sync.Mutex               // is held while the engine is told so, and while that is undone

	mu      sync.Mutex
	problem error // why the last renewal failed
}

// Run renews until ctx ends. Then it lets the lease run out by itself: the daemon may be
// back before that, and its agents live on meanwhile.
func (k *keeper) Run(ctx context.Context) error {
	defer k.hangUp()
	return periodic.Run(ctx, func(ctx context.Context) time.Duration {
		err := k.renew(ctx)
		if ctx.Err() != nil {
			return 0
		}
		k.note(err)
		if err != nil {
			k.hangUp()
			return k.lease.Every() / 5
		}
		return k.lease.Every()
	})
}

// awaitFirst waits until the engine was asked for the lease once since the daemon began. A
// daemon that was only restarted holds the lease still.
func (k *keeper) awaitFirst() {
	if !k.lease.Unknown() {
		return
	}
	late := time.NewTimer(k.lease.Every())
	defer late.Stop()
	select {
	case <-k.asked:
	case <-late.C:
	}
}

// hasAsked reports whether the engine was asked for the lease since the daemon began.
func (k *keeper) hasAsked() bool {
	select {
	case <-k.asked:
		return true
	default:
		return false
	}
}

// renew extends the lease, first on the engine's clock and then on this host's.
func (k *keeper) renew(ctx context.Context) error {
	defer k.askOnce.Do(func() { close(k.asked) })
	err := k.hindered()
	if k.draining.Load() {
		err = errDrained
	}
	if err != nil {
		k.lease.LetGo()
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, k.lease.Every())
	defer cancel()
	if !k.connected() {
		if err := k.connect(ctx); err != nil {
			return err
		}
	}
	sent := k.lease.Sending()
	err = k.heed(ctx, k.engine, func(ctx context.Context) ([]fleet.Taken, error) {
		return k.engine.Renew(ctx, k.host.DB, k.incarnation, k.lease.Span())
	})
	switch {
	case errors.Is(err, pg.ErrMoved):
		k.lease.LetGo()
		return pg.ErrLease
	case err == nil && !k.draining.Load():
		k.lease.Renewed(sent)
		k.renewed()
		noticed, err := k.engine.Noticed(ctx)
		k.noticed.Store(&noticed)
		return err
	}
	return err
}

// connect connects to the engine, and takes the lease under a new incarnation.
func (k *keeper) connect(ctx context.Context) error {
	if err := k.dial(ctx); err != nil {
		return err
	}
	_, _, err := k.healer.register(ctx, k.engine, k.host)
	if err != nil {
		return err
	}
	incarnation, err := k.engine.BeginLease(ctx, k.host.DB, k.lease.Span(), !k.begun, k.incarnation)
	if pg.IsUnknown(err) {
		k.incarnation++ // the engine may have given the next one to this daemon, and the answer was lost
	}
	if err != nil {
		return err
	}
	k.begun, k.incarnation = true, incarnation
	k.last.Store(incarnation)
	return nil
}

// note keeps why a renewal failed, and logs the failure if it is new.
func (k *keeper) note(err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	was := k.problem
	k.problem = err
	switch {
	case err == nil && was != nil:
		k.log.Info("this host's lease in the fleet is renewed again")
	case err != nil && (was == nil || was.Error() != err.Error()):
		k.log.Warn("this host's lease in the fleet is not renewed; it is tried again", "left",
			k.lease.Left().Round(time.Millisecond).String(), "error", err)
	}
}

// trouble returns why the lease is not renewed, nil if it is.
func (k *keeper) trouble() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.problem
}

// tell adds the state of the lease to a status. A nil keeper holds no lease.
func (k *keeper) tell(st *fleet.Status) {
	st.Lease, st.Noticed = string(lease.Doubtful), []string{}
	if k == nil {
		return
	}
	st.Lease, st.LeaseLeft = string(k.lease.Verdict()), k.lease.Left().Round(time.Millisecond).Seconds()
	st.LeaseSpan, st.Grace = k.lease.Span().Seconds(), k.grace.Seconds()
	if noticed := k.noticed.Load(); noticed != nil && *noticed != nil {
		st.Noticed = *noticed
	}
	if err := k.trouble(); err != nil {
		st.LeaseError = err.Error()
	}
}

// errDrained is why a drained host holds no lease.
var errDrained = errors.New("this host was drained: it has let go of its runs until `ckptsidecar fleet drain --undo`, or until the daemon starts again")
