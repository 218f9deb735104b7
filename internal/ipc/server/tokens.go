package server

import (
	"context"
	"net/http"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

func (c *call) putToken() error {
	r := ckpt.TokenRequest{ID: c.r.PathValue("token")}
	if err := c.decode(&r); err != nil {
		return err
	}
	ctx, cancel := c.writing(c.server.limits.WriteTimeout)
	defer cancel()
	token, made, err := c.server.store.Tokens.PutToken(ctx, c.scope, r)
	if err != nil {
		return err
	}
	if made {
		return c.sendJSON(http.StatusCreated, token)
	}
	return c.sendJSON(http.StatusOK, token)
}

func (c *call) revokeToken() error {
	id := c.r.PathValue("token")
	ctx, cancel := c.writing(c.server.limits.WriteTimeout)
	defer cancel()
	token, err := c.server.store.Tokens.RevokeToken(ctx, c.scope, id)
	if err != nil {
		return err
	}
	return c.sendJSON(http.StatusOK, token)
}

func (c *call) listTokens() error {
	f := ckpt.TokenFilter{Before: c.query.get("before")}
	var err error
	if f.Limit, err = c.query.limit(); err != nil {
		return err
	}
	return read(c, true, func(ctx context.Context) (*ckpt.TokenPage, error) {
		return c.server.store.Tokens.Tokens(ctx, c.scope, f)
	})
}
