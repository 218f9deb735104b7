package client

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/cenkalti/backoff/v4"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/ipc/endpoint"
	"github.com/ckptsidecar/ckptsidecar/internal/periodic"
)

// Follow calls f with each event of a run after a sequence number: first the stored events, then the
// new ones. It ends when ctx ends, when f returns an error, or when the run is gone, and always with an
// error. If the daemon restarts, Follow connects again and continues after the last event: it loses no
// event and repeats none. Retry limits the first connection only.
func (c *Client) Follow(ctx context.Context, ref ckpt.RunRef, after int64, f func(ckpt.Event) error) error {
	path, err := runPath(ref, "events")
	if err != nil {
		return err
	}
	return c.follow(ctx, follower{client: c, path: path, after: after, tell: func(line []byte, after int64) (int64, bool, error) {
		var e ckpt.Event
		if err := json.Unmarshal(line, &e); err != nil {
			return 0, false, misunderstood(err, false)
		}
		if e.Seq <= after {
			return after, false, nil
		}
		err := f(e)
		return e.Seq, err != nil, err
	}})
}

// FollowAll calls f with each event of all runs of the owner after event number N: first the stored
// events, in the order in which they were appended, then the new ones. It ends as Follow does, and
// survives restarts of the daemon in the same way.
func (c *Client) FollowAll(ctx context.Context, after int64, f func(ckpt.OwnerEvent) error) error {
	return c.follow(ctx, follower{client: c, path: "/v1/events", after: after, tell: func(line []byte, _ int64) (int64, bool, error) {
		var e ckpt.OwnerEvent
		if err := json.Unmarshal(line, &e); err != nil {
			return 0, false, misunderstood(err, false)
		}
		err := f(e)
		return e.N, err != nil, err
	}})
}

// EventsOf reads one page of the events of all runs of the owner, after event number N.
func (c *Client) EventsOf(ctx context.Context, after int64, limit int) (*ckpt.OwnerEventPage, error) {
	a := &ask{method: http.MethodGet, path: "/v1/events", repeatable: true}
	if after != 0 {
		a.query.add("after", strconv.FormatInt(after, 10))
	}
	a.query.addLimit(limit)
	page := new(ckpt.OwnerEventPage)
	_, err := c.fetch(ctx, a, page)
	return orNil(page, err)
}

// follow follows until it is told to end, or until it gets an error that a new attempt would get again.
func (c *Client) follow(ctx context.Context, s follower) error {
	pauses := backoff.NewExponentialBackOff(
		backoff.WithInitialInterval(20*time.Millisecond),
		backoff.WithMaxInterval(2*time.Second),
		backoff.WithMaxElapsedTime(0), // ctx or giveUp ends it
	)
	began := time.Now()
	for {
		last := s.after
		err := s.once(ctx)
		switch {
		case s.refused != nil:
			return s.refused
		case ctx.Err() != nil:
			return broken(ctx.Err(), false)
		case !passes(err) || s.single && s.connected || !s.connected && time.Since(began) >= c.Retry:
			return err
		}
		if s.after != last {
			pauses.Reset()
		}
		_ = periodic.Wait(ctx, max(pauses.NextBackOff(), min(retryHint(err, 2*time.Second), 2*time.Second)))
	}
}

// passes reports whether to follow again after err: the daemon is away, is stopping, or has too many
// followers. A new attempt would get any other error again.
func passes(err error) bool {
	var nobody *endpoint.DialError
	if errors.As(err, &nobody) {
		return !nobody.Stranger()
	}
	code := ckpt.CodeOf(err)
	return code == ckpt.CodeBusy || code == ckpt.CodeQuota
}

// follower is the progress of a Follow.
type follower struct {
	client    *Client
	path      string
	after     int64
	tell      func(line []byte, after int64) (next int64, refused bool, err error)
	single    bool // it ends with its first stream
	connected bool
	refused   error // the error that tell returned
}

// once follows over one connection until the connection ends.
func (s *follower) once(ctx context.Context) error {
	a := &ask{method: http.MethodGet, path: s.path}
	a.query.add("follow", "true")
	if s.after != 0 {
		a.query.add("after", strconv.FormatInt(s.after, 10))
	}
	body, err := s.client.stream(ctx, a, nil)
	if err != nil {
		return err
	}
	defer body.Close()
	s.connected = true
	lines := bufio.NewReaderSize(body, 64<<10)
	for {
		line, err := lines.ReadBytes('\n')
		if err == nil {
			err = s.take(line)
		} else { // a line without its end was cut off, and is sent again
			err = ended(err)
		}
		if err != nil {
			return err
		}
	}
}

// ended returns the error of a stream that ended. The daemon ends the streams of followers when it
// stops.
func ended(err error) error {
	if errors.Is(err, io.EOF) {
		return ckpt.Errorf(ckpt.CodeBusy, "the daemon closed the stream of events")
	}
	return broken(err, false)
}

func (s *follower) take(line []byte) error {
	next, refused, err := s.tell(line, s.after)
	if refused {
		s.refused = err
	}
	if err == nil {
		s.after = next
	}
	return err
}
