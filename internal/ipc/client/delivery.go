package client

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/cenkalti/backoff/v4"
	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/ipc"
	"github.com/ckptsidecar/ckptsidecar/internal/ipc/endpoint"
	"github.com/ckptsidecar/ckptsidecar/internal/periodic"
)

// Outbox stands between a client and the wire for the writes that may be made
// later: saves, and what an owner reports of its steps, operations and events.
// It sends, or keeps what it could not send, in the order in which it is asked.
type Outbox interface {
	// Write makes a request by send, or keeps it and answers *KeptError.
	Write(ctx context.Context, r *Request, send func(context.Context) error) error
}

// KeptError says that a write was not made, but is kept to be made later.
type KeptError struct {
	Err error // why it could not be made now
}

func (e *KeptError) Error() string { return "kept to be sent later: " + e.Err.Error() }

// Unwrap gives the cause.
func (e *KeptError) Unwrap() error { return e.Err }

// Request is a write as it may be made at any time, by anybody, and more than
// once: it carries an id or a key.
type Request struct {
	Agent, Run   string
	Method, Path string // the path is escaped
	Query        string // encoded
	Header       map[string]string
	Body         []byte
}

// Send makes a kept request. It neither repeats nor keeps it.
func (c *Client) Send(ctx context.Context, r *Request, at ckpt.Time) (replayed bool, err error) {
	a := &ask{method: r.Method, path: r.Path, header: http.Header{ipc.HeaderSpooled: {at.String()}}, body: r.Body, write: true,
		repeatable: true, rawQuery: r.Query}
	for name, value := range r.Header {
		a.header[http.CanonicalHeaderKey(name)] = []string{value}
	}
	ans, err := c.try(ctx, a)
	if err != nil {
		return false, err
	}
	return ans.replayed(), nil
}

// through makes a write by send, by way of the outbox where there is one.
func (c *Client) through(ctx context.Context, a *ask, send func(context.Context) error) error {
	if c.Outbox == nil || a.agent == "" {
		return send(ctx)
	}
	return c.Outbox.Write(ctx, a.request(c.Owner), send)
}

func (a *ask) request(owner string) *Request {
	query := slices.Clone(a.query)
	query.add(ipc.OwnerParameter, owner)
	r := &Request{Agent: a.agent, Run: a.run, Method: a.method, Path: a.path, Query: query.encode(), Header: map[string]string{}, Body: a.body}
	for name, values := range a.header {
		r.Header[name] = values[0]
	}
	if a.contentType != "" {
		r.Header["Content-Type"] = a.contentType
	}
	return r
}

// mayBeKept says which calls of a run an outbox is asked about: what makes
// sense later too. To claim a run or to beat does not.
func mayBeKept(parts []string) bool {
	switch {
	case len(parts) == 0:
		return false
	case parts[0] == "operations":
		return parts[len(parts)-1] != "resolve"
	}
	return strings.Contains(" steps events end ", " "+parts[0]+" ")
}

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
