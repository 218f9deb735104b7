package monitor

import (
	"cmp"
	"context"
	"errors"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/liveness"
	"github.com/ckptsidecar/ckptsidecar/internal/periodic"
)

// Run makes a round at once and then one every interval, until ctx ends. It logs what
// went wrong and goes on: the next round tries again.
func (m *Monitor) Run(ctx context.Context) error {
	return periodic.Run(ctx, func(ctx context.Context) time.Duration {
		result, err := m.Once(ctx)
		if ctx.Err() == nil {
			m.log(result, err)
		}
		return m.pace()
	})
}

// Once makes one round. The first round is the sweep: it interrupts runs of dead
// processes. Nothing can time out in it, because no owner could send a heartbeat while
// the daemon was down. Once returns the error that ended the round: ctx's, or that of a
// store that no longer knows what is on disk.
func (m *Monitor) Once(ctx context.Context) (Result, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := &round{Monitor: m, owners: map[liveness.Process]liveness.State{}}
	err := r.all(ctx)
	m.tight = r.tightest
	if errors.Is(err, errPutOff) {
		r.PutOff, err = true, nil
	}
	m.forget()
	return r.Result, err
}

// round is one round of a monitor.
type round struct {
	*Monitor
	Result
	owners   map[liveness.Process]liveness.State // the state of each owner; an owner of many runs is looked at once
	tightest time.Duration                       // the shortest limit of a run
}

// errPutOff ends a round. The next round does the rest.
var errPutOff = errors.New("put off")

// all checks the watched runs, slice by slice.
func (r *round) all(ctx context.Context) error {
	limit := cmp.Or(r.Slice, DefaultSlice)
	for after := int64(0); ; {
		runs, err := r.Store.Watched(ctx, after, limit)
		if err != nil {
			return r.fail(ctx, err)
		}
		for _, run := range runs {
			if err := r.one(ctx, run); err != nil {
				return err
			}
		}
		if len(runs) < limit {
			return nil
		}
		after = runs[len(runs)-1].ID
	}
}

// one checks a run, and interrupts it if necessary.
func (r *round) one(ctx context.Context, run liveness.Run) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	r.Watched++
	for _, limit := range []time.Duration{run.HeartbeatTimeout, run.ProgressTimeout} {
		if limit > 0 && (r.tightest == 0 || limit < r.tightest) {
			r.tightest = limit
		}
	}
	s := r.sight(run)
	status, reason := Judge(run, Seen{Owner: r.owner(run.Process), Quiet: s.quiet, Stuck: s.stuck})
	if status == "" || s.at < s.retry {
		return nil
	}
	did, err := r.Store.Interrupt(ctx, run, status, reason)
	if err != nil {
		s.failed(r.now(), r.interval())
		return r.fail(ctx, err)
	}
	s.failures = 0
	if did {
		delete(r.sights, run.ID)
		r.note(run, status, reason)
	}
	return nil
}

func (r *round) owner(process liveness.Process) liveness.State {
	if process.PID == 0 {
		return liveness.Unknown
	}
	liveness, known := r.owners[process]
	if !known {
		liveness = r.Processes.Alive(process)
		r.owners[process] = liveness
	}
	return liveness
}

func (r *round) note(run liveness.Run, status ckpt.RunStatus, reason string) {
	if status == ckpt.RunTimedOut {
		r.TimedOut++
	} else {
		r.Interrupted++
	}
	if r.Log != nil {
		r.Log.Warn("interrupted a run", logOwner, run.Owner, logAgent, run.Agent, logRun, run.Run, logStatus, status, logReason, reason)
	}
}

// fail records a failure, or returns the error that must end the round. If the database
// was busy, no owner could send a heartbeat, so what was seen does not count.
func (r *round) fail(ctx context.Context, err error) error {
	e := ckpt.AsError(err)
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case e.Code == ckpt.CodeBusy:
		clear(r.sights)
		return errPutOff
	case e.Outcome == ckpt.OutcomeUnknown:
		return err
	}
	r.Failed++
	if len(r.Errors) < maxErrors {
		r.Errors = append(r.Errors, err)
	}
	return nil
}
