package server

import (
	"context"
	"net/http"

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
		return c.server.store.Prompts(ctx, c.scope, f)
	})
}

func (c *call) answerPrompt() error {
	a := ckpt.PromptAnswer{ID: c.r.PathValue("id"), IdempotencyKey: c.key}
	if err := c.decode(&a); err != nil {
		return err
	}
	return write(c, http.StatusOK, func(ctx context.Context) (*ckpt.Prompt, bool, error) {
		return c.server.store.AnswerPrompt(ctx, c.scope, a)
	})
}
