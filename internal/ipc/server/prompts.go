package server

import (
	"context"
	"net/http"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

func (c *call) listPrompts() error {
	open, err := c.query.is("open", false)
	if err != nil {
		return err
	}
	f := ckpt.PromptFilter{Open: open, Before: c.query.get("before")}
	if f.Limit, err = c.query.limit(); err != nil {
		return err
	}
	return read(c, true, func(ctx context.Context) (*ckpt.PromptPage, error) {
		return c.server.store.Prompts.Prompts(ctx, c.scope, f)
	})
}

func (c *call) answerPrompt() error {
	a := ckpt.PromptAnswer{ID: c.r.PathValue("id"), IdempotencyKey: c.key}
	if err := c.decode(&a); err != nil {
		return err
	}
	return write(c, http.StatusOK, func(ctx context.Context) (*ckpt.Prompt, bool, error) {
		return c.server.store.Prompts.AnswerPrompt(ctx, c.scope, a)
	})
}

func (c *call) askQuestion() error {
	ref := c.ref()
	r := ckpt.QuestionRequest{Agent: ref.Agent, Run: ref.Run, IdempotencyKey: c.key}
	if err := c.decode(&r); err != nil {
		return err
	}
	return write(c, http.StatusCreated, func(ctx context.Context) (*ckpt.Prompt, bool, error) {
		return c.server.store.Prompts.AskQuestion(ctx, c.scope, r)
	})
}

// getPrompt returns one prompt. With wait, it delays the answer while the prompt is open,
// at most for that time.
func (c *call) getPrompt() error {
	id := c.r.PathValue("id")
	var wait ckpt.Duration
	if text := c.query.get("wait"); text != "" {
		var err error
		if wait, err = ckpt.ParseDuration(text); err != nil || wait < 0 || wait > ckpt.MaxWait {
			return ckpt.Errorf(ckpt.CodeInvalid, "the query parameter wait must be a duration from 0s to %s, such as 30s", ckpt.MaxWait)
		}
	}
	if wait == 0 || c.r.Method == http.MethodHead {
		return read(c, true, func(ctx context.Context) (*ckpt.Prompt, error) {
			return c.server.store.Prompts.Prompt(ctx, c.scope, id)
		})
	}
	return c.awaitPrompt(id, time.Duration(wait))
}

// awaitPrompt waits until a prompt is no longer open, the time is over, the client has
// left, or the server stops. A waiting call counts as one of the owner's followers, not
// as one of the owner's requests.
func (c *call) awaitPrompt(id string, wait time.Duration) error {
	owner := c.conn.owner
	if !owner.followers.tryAcquire(1) {
		return &ckpt.Error{Code: ckpt.CodeQuota, RetryAfter: time.Second,
			Message: "you wait for too many answers, or follow too many runs, at once: end some first"}
	}
	c.keep(&owner.followers, 1)
	c.giveBack(&owner.requests)
	c.route = &waitRoute
	ctx, cancel := c.following()
	defer cancel()
	over := time.NewTimer(wait)
	defer over.Stop()
	for late := false; ; {
		changed := c.server.store.Prompts.PromptsChanged() // before reading, so that no change is missed
		p, err := c.readPrompt(ctx, id)
		switch {
		case ctx.Err() != nil:
			return c.letGo()
		case err != nil:
			return err
		case late || p.Status != ckpt.PromptOpen:
			return c.sendJSON(http.StatusOK, p)
		}
		select {
		case <-changed:
		case <-expiry(p):
		case <-over.C:
			late = true
		case <-ctx.Done():
			return c.letGo()
		}
	}
}

// expiry returns a channel that fires when a prompt expires, or never. If the wall clock
// was set back, it fires early, and the prompt is only read once more.
func expiry(p *ckpt.Prompt) <-chan time.Time {
	if p.ExpiresAt.IsZero() {
		return nil
	}
	return time.After(max(time.Until(p.ExpiresAt.Time), 50*time.Millisecond))
}

// readPrompt reads a prompt for a waiting call. All waiting calls can wake up at once.
func (c *call) readPrompt(ctx context.Context, id string) (*ckpt.Prompt, error) {
	ctx, cancel := context.WithTimeout(ctx, c.server.limits.ReadTimeout)
	defer cancel()
	states := &c.conn.owner.states
	if err := states.acquire(ctx, 1, c.server.limits.ReadTimeout); err != nil {
		return nil, err
	}
	defer states.release(1)
	return c.server.store.Prompts.Prompt(ctx, c.scope, id)
}

func (c *call) testNotify() error {
	return write(c, http.StatusAccepted, func(ctx context.Context) (*ckpt.NotifyTested, bool, error) {
		tested, err := c.server.store.Service.NotifyTest(ctx, c.scope)
		return tested, false, err
	})
}
