package client

import (
	"context"
	"io"
	"net/http"
	"time"

	"github.com/cenkalti/backoff/v4"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/periodic"
)

// waitPart is how long one request waits for an answer. The next request follows at once.
const waitPart = ckpt.Duration(5 * time.Minute)

// WaitPrompt returns a prompt as soon as it is no longer open: answered, expired or
// withdrawn. The daemon holds the request until then, on a connection of its own, so that
// heartbeats continue. If the daemon restarts, WaitPrompt asks again. It ends earlier
// only if ctx ends, or with an error that a new attempt would get again.
func (c *Client) WaitPrompt(ctx context.Context, id string) (*ckpt.Prompt, error) {
	if err := ckpt.CheckID(id); err != nil {
		return nil, err
	}
	pauses := backoff.NewExponentialBackOff(
		backoff.WithInitialInterval(20*time.Millisecond),
		backoff.WithMaxInterval(2*time.Second),
		backoff.WithMaxElapsedTime(0), // ctx ends it
	)
	for {
		p, err := c.waitOnce(ctx, id)
		switch {
		case err == nil && p.Status != ckpt.PromptOpen:
			return p, nil
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case err == nil:
			pauses.Reset()
			continue
		case !passes(err):
			return nil, err
		}
		_ = periodic.Wait(ctx, max(pauses.NextBackOff(), min(retryHint(err, 2*time.Second), 2*time.Second)))
	}
}

func (c *Client) waitOnce(ctx context.Context, id string) (*ckpt.Prompt, error) {
	a := &ask{method: http.MethodGet, path: "/v1/prompts/" + id}
	a.query.add("wait", waitPart.String())
	body, err := c.stream(ctx, a, nil)
	if err != nil {
		return nil, err
	}
	defer body.Close()
	p := new(ckpt.Prompt)
	text, err := io.ReadAll(body)
	if err != nil {
		return nil, broken(err, false)
	}
	return orNil(p, readAnswer(text, p, false))
}
