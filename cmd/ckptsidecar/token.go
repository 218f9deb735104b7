package main

import (
	"context"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/cli"
	"github.com/ckptsidecar/ckptsidecar/internal/cli/term"
)

type tokenCmd struct {
	Create tokenCreateCmd `cmd:"" help:"Create a token and print it once. The daemon keeps only a hash."`
	List   tokenListCmd   `cmd:"" help:"List tokens, newest first, without their secrets."`
	Revoke tokenRevokeCmd `cmd:"" help:"Revoke a token."`
}

type tokenCreateCmd struct {
	Note string `help:"What it is for." placeholder:"TEXT"`
}

func (c *tokenCreateCmd) Run(ctx context.Context, a *app) error {
	token, request := ckpt.NewToken(c.Note)
	if err := cli.Checked(request.Check()); err != nil {
		return err
	}
	made, err := a.Client().PutToken(ctx, request)
	switch {
	case err != nil:
		return err
	case a.JSON:
		return a.WriteJSON(struct {
			*ckpt.Token
			Secret string `json:"token"`
		}{made, token})
	}
	term.Println(a.Stdout, token)
	a.Tell("spans sent with this token belong to %s; the token is shown only once; revoke it with: ckptsidecar token revoke %s", made.Owner, made.ID)
	return nil
}

type tokenListCmd struct {
	cli.Paged
}

func (c *tokenListCmd) Run(ctx context.Context, a *app) error {
	if err := c.Paged.Check(); err != nil {
		return err
	}
	all := &ckpt.TokenPage{Tokens: []ckpt.Token{}}
	var err error
	all.Next, err = c.Paged.Read(func(before string, limit int) (ckpt.Ref, error) {
		page, err := a.Client().Tokens(ctx, ckpt.TokenFilter{Before: before, Limit: limit})
		if err != nil {
			return "", err
		}
		all.Tokens = append(all.Tokens, page.Tokens...)
		return page.Next, nil
	})
	switch {
	case err != nil:
		return err
	case a.JSON:
		return a.WriteJSON(all)
	case len(all.Tokens) == 0:
		a.Tell("there are no tokens: create one with ckptsidecar token create")
		return nil
	}
	for i := range all.Tokens {
		t := &all.Tokens[i]
		state := a.Out.Green("valid")
		if !t.RevokedAt.IsZero() {
			state = "revoked " + term.Moment(t.RevokedAt)
		}
		term.Printf(a.Stdout, "%s  %s  made %s  %s  %s\n", a.Out.Bold(t.ID), t.Owner, term.Moment(t.CreatedAt), state, t.Note)
	}
	c.Paged.More(a.App, all.Next)
	return nil
}

type tokenRevokeCmd struct {
	ID string `arg:"" help:"The token's id, as list shows it."`
}

func (c *tokenRevokeCmd) Run(ctx context.Context, a *app) error {
	if err := cli.Checked(ckpt.CheckTokenID(c.ID)); err != nil {
		return err
	}
	t, err := a.Client().RevokeToken(ctx, c.ID)
	switch {
	case err != nil:
		return err
	case a.JSON:
		return a.WriteJSON(t)
	}
	term.Printf(a.Stdout, "%s  revoked\n", t.ID)
	return nil
}
