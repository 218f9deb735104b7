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

// Outbox stands between a client and the connection for the writes that can be sent
// later: saves, and reports of steps, operations and events. It sends a write, or keeps
// it, in the order of the calls.
type Outbox interface {
	// Write sends a request with send, or keeps it and returns *KeptError.
	Write(ctx context.Context, r *Request, send func(context.Context) error) error
}

// KeptError means that a write was not sent, but is kept to be sent later.
type KeptError struct {
	Err error // why it could not be sent now
}

func (e *KeptError) Error() string { return "kept to be sent later: " + e.Err.Error() }

// Unwrap returns the cause.
func (e *KeptError) Unwrap() error { return e.Err }

// Request is a write that can be sent at any time, by any client and more than once,
// because it carries an id or a key.
type Request struct {
	Agent, Run   string
	Direct       bool   // it is sent now or not at all
	Method, Path string // the path is escaped
	Query        string // encoded
	Header       map[string]string
	Body         []byte
}

// Send sends a kept request. It neither repeats nor keeps it.
func (c *Client) Send(ctx context.Context, r *Request, at ckpt.Time) (replayed bool, err error) {
	a := &ask{method: r.Method, path: r.Path, header: http.Header{ipc.HeaderSpooled: {at.String()}}, body: r.Body, write: true,
		repeatable: true, asKept: true, rawQuery: r.Query}
	for name, value := range r.Header {
		a.header[http.CanonicalHeaderKey(name)] = []string{value}
	}
	ans, err := c.try(ctx, a)
	if err != nil {
		return false, err
	}
	return ans.replayed(), nil
}

// through sends a write with send, through the outbox if there is one.
func (c *Client) through(ctx context.Context, a *ask, send func(context.Context) error) error {
	if c.Outbox == nil || a.agent == "" {
		return send(ctx)
	}
	return c.Outbox.Write(ctx, a.request(c.Owner), send)
}

func (a *ask) request(owner string) *Request {
	query := slices.Clone(a.query)
	query.add(ipc.OwnerParameter, owner)
	r := &Request{Agent: a.agent, Run: a.run, Direct: a.direct, Method: a.method, Path: a.path, Query: query.encode(), Header: map[string]string{}, Body: a.body}
	for name, values := range a.header {
		r.Header[name] = values[0]
	}
	if a.contentType != "" {
		r.Header["Content-Type"] = a.contentType
	}
	return r
}

// mayBeKept reports whether a call of a run can be sent later. It makes no sense to claim
// a run or to send a heartbeat later.
func mayBeKept(parts []string) bool {
	switch {
	case len(parts) == 0:
		return false
	case parts[0] == "operations":
		return parts[len(parts)-1] != "resolve"
	}
	return strings.Contains(" steps events end ", " "+parts[0]+" ")
}

// do makes a call. A write that can be sent later goes through the outbox.
func (c *Client) do(ctx context.Context, a *ask) (ans *answer, err error) {
	err = c.through(ctx, a, func(ctx context.Context) error {
		ans, err = c.repeat(ctx, a)
		return err
	})
	return orNil(ans, err)
}

// repeat makes a call, and repeats it as long as Retry allows.
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

// mayRepeat reports whether a repeated call can succeed after err, and can do no harm.
func mayRepeat(a *ask, err error) bool {
	var nobody *endpoint.DialError
	if errors.As(err, &nobody) {
		return !nobody.Stranger()
	}
	var e *ckpt.Error
	return errors.As(err, &e) && (e.Code == ckpt.CodeBusy || e.Code == ckpt.CodeNotReplicated) &&
		(a.repeatable || e.OutcomeOrDefault() == ckpt.OutcomeNotSaved)
}

// retryHint returns the pause that the daemon asked for, but at most the given one.
func retryHint(err error, most time.Duration) time.Duration {
	var e *ckpt.Error
	if !errors.As(err, &e) {
		return 0
	}
	return min(e.RetryAfter, most)
}
