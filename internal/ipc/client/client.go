package client

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v4"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/ipc"
	"github.com/ckptsidecar/ckptsidecar/internal/ipc/endpoint"
	"github.com/ckptsidecar/ckptsidecar/internal/periodic"
)

// Client speaks to a daemon. The zero Client is ready: it finds the daemon as
// endpoint.Candidates says. It is safe for concurrent use, keeps one connection
// alive, and sends requests over it in order. It must not be copied once used.
//
// Its errors are *ckpt.Error, save that nobody at the endpoint is
// *endpoint.DialError. A write whose answer did not come has the outcome
// unknown.
type Client struct {
	Socket string // where the daemon listens; "" tries the candidates
	Owner  string // whose agents calls are about; "" for the caller's own. For administrators

	// Retry is how long a call goes on trying when the daemon is busy or away,
	// as long as repeating it cannot do anything twice; 0 is not at all. Saves
	// are always safe to repeat, because their id is their idempotency key.
	Retry time.Duration

	// Whole makes Save send every state whole. Otherwise the client keeps a copy
	// of the last large state of each run, 64 MiB of them at most.
	Whole bool

	// Absent, if set, is told when nobody can be reached, and answers whether
	// somebody can be now.
	Absent func(context.Context, error) bool
	Outbox Outbox // nil for none: then what cannot be sent is an error

	bases   baseCache
	once    sync.Once
	line    *line           // the one connection
	streams *http.Transport // exports, imports and followers have one each, so that they delay nothing
}

// Close closes the connection. The client may be used again.
func (c *Client) Close() {
	c.init()
	c.line.close()
	c.streams.CloseIdleConnections()
}

func (c *Client) init() {
	c.once.Do(func() {
		c.line = newLine(c.dial)
		c.streams = c.transport()
		c.streams.DisableKeepAlives = true
	})
}

// ask is a request that may be made more than once.
type ask struct {
	method, path string // the path is escaped
	query        values
	header       http.Header
	rawQuery     string // instead of query
	body         []byte
	contentType  string
	write        bool
	repeatable   bool // making it twice does it once

	agent, run string // whose it is, where an outbox may keep it; else ""
}

// answer is a reply with a good status, read to its end.
type answer struct {
	header http.Header
	body   []byte
}

func (a *answer) replayed() bool { return a.header.Get(ipc.HeaderReplayed) == "true" }

// do makes a call, by way of the outbox where it is a write that may be kept.
func (c *Client) do(ctx context.Context, a *ask) (ans *answer, err error) {
	err = c.through(ctx, a, func(ctx context.Context) error {
		ans, err = c.repeat(ctx, a)
		return err
	})
	return orNil(ans, err)
}

// repeat makes a call, and makes it again for as long as Retry allows.
func (c *Client) repeat(ctx context.Context, a *ask) (*answer, error) {
	ans, err := c.try(ctx, a)
	if err == nil || c.Retry <= 0 {
		return ans, err
	}
	pauses := backoff.NewExponentialBackOff(
		backoff.WithInitialInterval(20*time.Millisecond),
		backoff.WithMaxInterval(2*time.Second),
		backoff.WithMaxElapsedTime(c.Retry),
	)
	for err != nil && mayRepeat(a, err) {
		pause := pauses.NextBackOff()
		if pause == backoff.Stop || periodic.Wait(ctx, max(pause, retryHint(err, c.Retry))) != nil {
			return nil, err
		}
		ans, err = c.try(ctx, a)
	}
	return ans, err
}

// mayRepeat says whether err passes by itself and the call can do no harm twice.
func mayRepeat(a *ask, err error) bool {
	var nobody *endpoint.DialError
	if errors.As(err, &nobody) {
		return !nobody.Stranger()
	}
	var e *ckpt.Error
	return errors.As(err, &e) && e.Code == ckpt.CodeBusy && (a.repeatable || e.OutcomeOrDefault() == ckpt.OutcomeNotSaved)
}

// retryHint is what the daemon asked for, unless it is more than there is.
func retryHint(err error, most time.Duration) time.Duration {
	var e *ckpt.Error
	if !errors.As(err, &e) {
		return 0
	}
	return min(e.RetryAfter, most)
}
