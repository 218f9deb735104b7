package server

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/ipc"
)

func (c *call) appendEvents() error {
	ref := c.ref()
	var err error
	if ref.Epoch, err = c.query.number("epoch", 0, 1<<62); err != nil {
		return err
	}
	var events []ckpt.NewEvent
	if err := c.decodeUpTo(maxValues, &events); err != nil {
		return err
	}
	if err := c.before(ref, ref.Epoch, BeginSave); err != nil {
		return err
	}
	if err := c.beginAnew(ref, ref.Epoch); err != nil {
		return err
	}
	return writeDurably(c, http.StatusCreated, func(ctx context.Context) (*ckpt.Appended, bool, error) {
		return c.server.store.Events.Append(ctx, c.scope, ref, events, c.key)
	}, func(a *ckpt.Appended) *ckpt.Durability { return &a.Durability })
}

func (c *call) getEvents() error {
	after, limit, following, err := c.eventQuery()
	if err != nil {
		return err
	}
	if following {
		return follow(c, after, func(ctx context.Context, after int64) ([]ckpt.Event, bool, error) {
			page, err := c.server.store.Events.Events(ctx, c.scope, c.ref(), after, followPage)
			if err != nil {
				return nil, false, err
			}
			return page.Events, page.Next != nil, nil
		}, func(e *ckpt.Event) int64 { return e.Seq })
	}
	return read(c, true, func(ctx context.Context) (*ckpt.EventPage, error) {
		return c.server.store.Events.Events(ctx, c.scope, c.ref(), after, limit)
	})
}

// getOwnerEvents reads or follows the events of all runs of an owner.
func (c *call) getOwnerEvents() error {
	after, limit, following, err := c.eventQuery()
	if err != nil {
		return err
	}
	if following {
		return follow(c, after, func(ctx context.Context, after int64) ([]ckpt.OwnerEvent, bool, error) {
			page, err := c.server.store.Events.EventsOf(ctx, c.scope, after, followPage)
			if err != nil {
				return nil, false, err
			}
			return page.Events, page.Next != nil, nil
		}, func(e *ckpt.OwnerEvent) int64 { return e.N })
	}
	return read(c, true, func(ctx context.Context) (*ckpt.OwnerEventPage, error) {
		return c.server.store.Events.EventsOf(ctx, c.scope, after, limit)
	})
}

// eventQuery reads the start and the number of the requested events, and whether to
// follow.
func (c *call) eventQuery() (after int64, limit int, follow bool, err error) {
	n, err := c.query.number("after", 0, 1<<62)
	if err != nil {
		return 0, 0, false, err
	}
	if n != nil {
		after = *n
	}
	if limit, err = c.query.limit(); err != nil {
		return 0, 0, false, err
	}
	if follow, err = c.query.is("follow", false); err == nil && follow {
		err = c.query.refuse("who follows gets all", "limit")
	}
	return after, limit, follow, err
}

const (
	// followPage is how many events a follower reads at once.
	followPage = 128
	// followPart is how many bytes of events a follower sends at once.
	followPart = 64 << 10
	// letGoTime is how long a follower's client has, when the server stops, to receive the
	// data that is on its way.
	letGoTime = 250 * time.Millisecond
)

// errGone means that the client left, or did not read the reply in time. The server cannot
// tell it anything.
var errGone = errors.New("the client stopped reading")

// follow streams events as lines of JSON until the client leaves or the server stops. read
// returns the next events after a number, and whether there are more at once. number
// returns the number of an event. The call counts as one of the owner's followers, not as
// one of the owner's requests. A client that does not read in time is disconnected. It can
// continue after the last line that it got.
func follow[E any](c *call, after int64,
	read func(ctx context.Context, after int64) (events []E, more bool, err error), number func(*E) int64) error {
	if err := c.beFollower(); err != nil {
		return err
	}
	ctx, cancel := c.following()
	defer cancel()
	for {
		changed := c.server.store.Events.Changed() // before reading, so that no event is missed
		events, more, err := eventsAfter(ctx, c, after, read)
		if err == nil {
			err = sendEvents(ctx, c, events)
		}
		switch {
		case ctx.Err() != nil:
			return c.letGo()
		case errors.Is(err, errGone) || c.r.Method == http.MethodHead && err == nil:
			return nil
		case err != nil:
			return err
		}
		if n := len(events); n > 0 {
			after = number(&events[n-1])
		}
		if more {
			continue
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return c.letGo()
		}
	}
}

// beFollower makes the call count as one of the owner's followers, not as one of the
// owner's requests.
func (c *call) beFollower() error {
	owner := c.conn.owner
	if !owner.followers.tryAcquire(1) {
		return &ckpt.Error{Code: ckpt.CodeQuota, RetryAfter: time.Second,
			Message: "you are following too many runs at once: end some first"}
	}
	c.keep(&owner.followers, 1)
	c.giveBack(&owner.requests)
	c.route = &followRoute
	return nil
}

// following returns the context of a follower. It ends soon after the client has left, and
// at once when the server stops. This also ends a write that waits for a slow client.
func (c *call) following() (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(c.r.Context()))
	gone := context.AfterFunc(c.r.Context(), func() { time.AfterFunc(halfClosed, cancel) })
	stopped := context.AfterFunc(c.server.stopping, func() {
		cancel()
		c.hurry()
	})
	return ctx, func() {
		gone()
		stopped()
		cancel()
		if c.server.stopping.Err() != nil {
			c.hurry() // the last write may have set a later deadline in the meantime
		}
	}
}

func (c *call) hurry() { _ = c.conn.SetWriteDeadline(time.Now().Add(letGoTime)) }

// letGo ends a stream properly, so that the client knows that it is complete.
func (c *call) letGo() error {
	if c.status == 0 {
		return &ckpt.Error{Code: ckpt.CodeBusy, RetryAfter: time.Second, Message: "the daemon is stopping: follow again when it is back"}
	}
	return nil
}

// eventsAfter reads the next events. Followers wait for a share of the reads, because all
// of them wake up at once.
func eventsAfter[E any](ctx context.Context, c *call, after int64, read func(context.Context, int64) ([]E, bool, error)) ([]E, bool, error) {
	ctx, cancel := context.WithTimeout(ctx, c.server.limits.ReadTimeout)
	defer cancel()
	states := &c.conn.owner.states
	if err := states.acquire(ctx, 1, c.server.limits.ReadTimeout); err != nil {
		return nil, false, err
	}
	defer states.release(1)
	return read(ctx, after)
}

// sendEvents sends events as lines, in parts. The client must read each part in time. If
// there are no events yet, it sends the head of the reply, so that the client knows that
// it is following.
func sendEvents[E any](ctx context.Context, c *call, events []E) error {
	b := new(bytes.Buffer) // not from the pool: a follower can hold it for long
	for i := range events {
		if err := ipc.EncodeJSON(b, &events[i]); err != nil {
			return err
		}
		if b.Len() < followPart {
			continue
		}
		if err := c.sendPart(ctx, b); err != nil {
			return err
		}
	}
	return c.sendPart(ctx, b)
}

// sendPart sends the content of b and empties it.
func (c *call) sendPart(ctx context.Context, b *bytes.Buffer) error {
	if b.Len() == 0 && c.status != 0 {
		return nil
	}
	c.giveTime(int64(b.Len()))
	if err := ctx.Err(); err != nil { // checked last: giveTime could set a later deadline than the one of a stop
		return err
	}
	if c.status == 0 {
		c.Header()["Content-Type"] = ipc.TypeNDJSON
		c.Header()["Cache-Control"] = []string{"no-store"}
		c.WriteHeader(http.StatusOK)
	}
	_, err := c.Write(b.Bytes())
	if err == nil {
		err = http.NewResponseController(c).Flush()
	}
	if err != nil {
		return errGone
	}
	b.Reset()
	return nil
}
