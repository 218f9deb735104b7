package host

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/fleet/lease"
)

// unsure is the mark if nobody knows what the engine has.
const unsure = -1

// waiters are the requests that wait until the engine has what they have committed.
// They hold no resources while they wait.
type waiters struct {
	wake  chan struct{} // holds one signal for the shipper
	lease *lease.Lease  // nothing is confirmed while it is not held; nil on a host that holds none

	mu     sync.Mutex
	list   map[*waiter]bool
	mark   int64             // the row up to which the engine has this host's audit log, replicated; or unsure
	away   bool              // the last attempt to ship has failed
	fenced map[string]string // runs that another host owns, as Ship names them, with its name, "" if it is not known
	taken  map[string]string // those of them that the engine has named last, in its list of claimed runs

	gathering
}

// waiter is one such request.
type waiter struct {
	n       int64  // the row of the audit log that the engine must have
	run     string // as Ship names it
	degrade bool   // it accepts a local answer while the engine is away
	answer  chan error
}

func newWaiters() *waiters {
	return &waiters{wake: make(chan struct{}, 1), list: map[*waiter]bool{}, mark: unsure, fenced: map[string]string{}}
}

// Wait waits until the engine has a row of the audit log. It returns nil, or why the
// engine does not confirm the row.
func (w *waiters) Wait(ctx context.Context, n int64, run string, degrade bool) error {
	one := &waiter{n: n, run: run, degrade: degrade, answer: make(chan error, 1)}
	w.mu.Lock()
	err, done := w.verdict(one)
	if !done {
		w.list[one] = true
		w.came()
	}
	w.mu.Unlock()
	if done {
		return err
	}
	defer w.forget(one)
	select {
	case w.wake <- struct{}{}:
	default: // it has a signal already
	}
	select {
	case err := <-one.answer:
		return err
	case <-ctx.Done():
		if !w.lease.Held() {
			return notReplicated("this host's lease in the fleet is over, so another host may own the run")
		}
		return notReplicated("the engine of the fleet has not confirmed it in time")
	}
}

func (w *waiters) forget(one *waiter) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.list, one)
}

// verdict returns how to answer a waiter, and whether the answer is known now.
func (w *waiters) verdict(one *waiter) (err error, done bool) {
	host, fenced := w.fenced[one.run]
	switch {
	case fenced:
		return &ckpt.Error{Code: ckpt.CodeFenced, Outcome: ckpt.OutcomeSaved, Host: host,
			Message: hostNamed(host) + " owns this run now: the write is on this host's disk alone, stop this process"}, true
	case w.mark >= one.n && w.lease.Held():
		return nil, true
	case one.degrade && !w.lease.Held():
		return notReplicated("this host's lease in the fleet is over"), true
	case w.away && one.degrade:
		return notReplicated("the engine of the fleet is away"), true
	}
	return nil, false
}

// tell answers all waiters whose answer is known. If why is not "", nothing will be
// confirmed, and all others get why. The caller holds the lock.
func (w *waiters) tell(why string) {
	for one := range w.list {
		err, done := w.verdict(one)
		if !done && why != "" {
			err, done = notReplicated(why), true
		}
		if done {
			delete(w.list, one)
			one.answer <- err
		}
	}
}

// confirmed notes up to which row the engine has this host's audit log, and which of
// the runs that came with it another host owns. refuse says why the engine's
// confirmation does not count, "" if it counts.
func (w *waiters) confirmed(mark int64, came, fenced []string, refuse string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, run := range came {
		if !slices.Contains(fenced, run) {
			delete(w.fenced, run)
		}
	}
	for _, run := range fenced {
		if _, known := w.fenced[run]; !known {
			w.fenced[run] = ""
		}
	}
	w.mark, w.away, w.expect = mark, false, len(w.list)
	if refuse != "" {
		w.mark = unsure
	}
	w.tell(refuse)
}

// fence notes all runs that other hosts have claimed. A run that is no longer among them
// has come back, or was deleted here: its name may be that of a new run.
func (w *waiters) fence(taken map[string]string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for run := range w.taken {
		delete(w.fenced, run)
	}
	w.taken = taken
	maps.Copy(w.fenced, taken)
	w.tell("")
}

// owned refuses a run that another host owns. run has the form that Ship uses.
func (w *waiters) owned(run string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if host, fenced := w.fenced[run]; fenced {
		return &ckpt.Error{Code: ckpt.CodeFenced, Host: host, Message: hostNamed(host) + " owns this run now: stop this process"}
	}
	return nil
}

// hostNamed names a host of the fleet, "" for one whose name is not known.
func hostNamed(name string) string {
	if name == "" {
		return "another host of the fleet"
	}
	return "host " + name + " of the fleet"
}

// forgive forgets that another host owned a run.
func (w *waiters) forgive(run string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.fenced, run)
}

// renewed answers the waiters that waited for the lease.
func (w *waiters) renewed() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.tell("")
}

// lost notes that nobody knows what the engine has. final says why waiting does not
// help, "" if it may help.
func (w *waiters) lost(final string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mark, w.away = unsure, true
	w.tell(final)
}

// any reports whether a request waits.
func (w *waiters) any() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.list) > 0
}

// notReplicated makes the error for a write that is on this host's disk only.
func notReplicated(why string) *ckpt.Error {
	return &ckpt.Error{Code: ckpt.CodeNotReplicated, Outcome: ckpt.OutcomeUnknown, RetryAfter: time.Second,
		Message: "the write is on this host's disk, and its agent's policy asks for durability: fleet, but " + why + ": try again with the same id"}
}
