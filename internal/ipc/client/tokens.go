package client

import (
	"context"
	"net/http"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

// PutToken registers a token that ckpt.NewToken created.
func (c *Client) PutToken(ctx context.Context, r ckpt.TokenRequest) (*ckpt.Token, error) {
	if err := r.Check(); err != nil {
		return nil, err
	}
	a, err := jsonAsk(http.MethodPut, tokensPath+"/"+r.ID, r)
	if err != nil {
		return nil, err
	}
	a.repeatable = true // sending the same token again changes nothing
	token := new(ckpt.Token)
	_, err = c.fetch(ctx, a, token)
	return orNil(token, err)
}

// RevokeToken revokes a token at once.
func (c *Client) RevokeToken(ctx context.Context, id string) (*ckpt.Token, error) {
	if err := ckpt.CheckTokenID(id); err != nil {
		return nil, err
	}
	token := new(ckpt.Token)
	_, err := c.fetch(ctx, &ask{method: http.MethodDelete, path: tokensPath + "/" + id, repeatable: true, write: true}, token)
	return orNil(token, err)
}

// Tokens lists one page of tokens, newest first.
func (c *Client) Tokens(ctx context.Context, f ckpt.TokenFilter) (*ckpt.TokenPage, error) {
	var q values
	q.add("before", f.Before)
	q.addLimit(f.Limit)
	page := new(ckpt.TokenPage)
	_, err := c.fetch(ctx, &ask{method: http.MethodGet, path: tokensPath, query: q, repeatable: true}, page)
	return orNil(page, err)
}

const tokensPath = "/v1/tokens"
