package notify

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/outbox"
)

// Limits of the attempts.
const (
	MaxAttempts = 14 // with a first pause of 1 s the last attempt is about 13.5 hours after the first

	atOnce     = 4               // attempts of one hook at the same time
	batch      = 32              // how many deliveries of a hook one query reads
	errorPause = 5 * time.Second // after the queue could not be read or written
	forgetting = time.Hour
)

// queue is the part of the store that the worker needs.
type queue interface {
	DueDeliveries(ctx context.Context, limit int) (due []outbox.Delivery, next time.Time, err error)
	NoteDelivered(ctx context.Context, list []outbox.Attempt) error
	ForgetDelivered(ctx context.Context) error
	NoticesChanged() <-chan struct{}
}

// Worker delivers notices.
type Worker struct {
	Store  queue
	Config Config
	Log    *slog.Logger
	Now    func() time.Time
}

// Run delivers what is due until ctx ends. A hook that does not answer holds up only its own
// notices. Run wakes up only for the next due delivery, a new notice, the end of a hook's attempts,
// or the deletion of old notices.
func (w *Worker) Run(ctx context.Context) error {
	forget := time.NewTicker(forgetting)
	defer forget.Stop()
	var hooks sync.WaitGroup
	defer hooks.Wait()
	busy, idle := map[string]bool{}, make(chan string)
	for {
		changed := w.Store.NoticesChanged() // before the read, so that no change is missed
		due, next, err := w.Store.DueDeliveries(ctx, batch)
		if ctx.Err() != nil {
			return nil
		}
		pause := forgetting
		switch {
		case err != nil:
			w.Log.Error("notices are waiting, because their queue cannot be read", "error", err)
			pause = errorPause
		case !next.IsZero():
			pause = max(next.Sub(w.Now()), time.Millisecond)
		}
		for hook, list := range ofEachHook(due) {
			if busy[hook] {
				continue
			}
			busy[hook] = true
			hooks.Go(func() {
				w.attemptAll(ctx, list)
				select {
				case idle <- hook:
				case <-ctx.Done():
				}
			})
		}
		timer := time.NewTimer(pause)
		select {
		case <-ctx.Done():
		case <-timer.C:
		case <-changed:
		case hook := <-idle:
			delete(busy, hook)
		case <-forget.C:
			if err := w.Store.ForgetDelivered(ctx); err != nil {
				w.Log.Error("old notices could not be deleted", "error", err)
			}
		}
		timer.Stop()
		if ctx.Err() != nil {
			return nil
		}
	}
}

func ofEachHook(due []outbox.Delivery) map[string][]outbox.Delivery {
	list := map[string][]outbox.Delivery{}
	for _, d := range due {
		list[d.Hook] = append(list[d.Hook], d)
	}
	return list
}

// attemptAll makes an attempt at each of some deliveries of one hook, and records the results. If
// they cannot be recorded, it waits before the hook is tried again.
func (w *Worker) attemptAll(ctx context.Context, due []outbox.Delivery) {
	results := make([]outbox.Attempt, len(due))
	var group sync.WaitGroup
	places := make(chan struct{}, atOnce)
	for i := range due {
		places <- struct{}{}
		group.Go(func() {
			defer func() { <-places }()
			results[i] = w.attempt(ctx, due[i])
		})
	}
	group.Wait()
	if ctx.Err() != nil { // attempts that were interrupted do not count
		results = onlyDelivered(results)
	}
	if err := w.Store.NoteDelivered(context.WithoutCancel(ctx), results); err != nil {
		w.Log.Error("notices are waiting, because their queue cannot be written", "hook", due[0].Hook, "error", err)
		select {
		case <-time.After(errorPause):
		case <-ctx.Done():
		}
	}
}

func onlyDelivered(results []outbox.Attempt) (list []outbox.Attempt) {
	for _, r := range results {
		if r.State == outbox.Delivered {
			list = append(list, r)
		}
	}
	return list
}

// attempt delivers a notice, and returns what to record about it.
func (w *Worker) attempt(ctx context.Context, d outbox.Delivery) outbox.Attempt {
	err := w.deliver(ctx, d.Hook, d.ID, d.Type, d.Body)
	r := outbox.Attempt{Delivery: d, State: outbox.Delivered, Next: w.Now()}
	if err == nil {
		return r
	}
	r.State, r.Error = outbox.Pending, err.Error()
	var gone *goneError
	if errors.As(err, &gone) || d.Attempts+1 >= MaxAttempts {
		r.State = outbox.Dead
		w.Log.Error("a notice was given up", "hook", d.Hook, "id", d.ID, "type", d.Type, "attempts", d.Attempts+1, "error", r.Error)
		return r
	}
	pause := time.Duration(w.Config.Retry)
	for range d.Attempts {
		pause = min(4*pause, longestPause)
	}
	var later *laterError
	if errors.As(err, &later) {
		pause = max(pause, later.after)
	}
	r.Next = w.Now().Add(pause)
	w.Log.Warn("a notice could not be delivered; the daemon tries again", "hook", d.Hook, "id", d.ID, "in", pause, "error", r.Error)
	return r
}

func (w *Worker) deliver(ctx context.Context, hook, id, kind string, body []byte) error {
	if webhook, is := w.Config.Webhooks[hook]; is {
		return webhook.send(ctx, id, body, w.Now())
	}
	if command, is := w.Config.Commands[hook]; is {
		return command.start(ctx, id, kind, body)
	}
	return errors.New("the hook is no longer in the settings")
}

// Straight tells every hook that wants the notice once, without the queue. It is for problems that
// keep the queue from being written.
func (w *Worker) Straight(ctx context.Context, n ckpt.Notice, body []byte) (err error) {
	for _, name := range w.Config.Names() {
		for _, kind := range w.Config.Types(name) {
			if kind == n.Type {
				err = errors.Join(err, w.deliver(ctx, name, n.ID, string(n.Type), body))
			}
		}
	}
	return err
}
