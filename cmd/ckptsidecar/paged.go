package main

import (
	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/cli"
)

// paged are the flags of long lists.
type paged struct {
	Limit  int    `short:"n" default:"50" help:"How many. Default: ${default}."`
	Before string `help:"Go on after this cursor of the page before." placeholder:"CURSOR"`
	All    bool   `help:"All of them, however many."`
}

func (p *paged) check() error {
	if p.Limit < 1 || p.Limit > ckpt.MaxLimit {
		return cli.Usagef("--limit is %d: it is between 1 and %d, or say --all", p.Limit, ckpt.MaxLimit)
	}
	return nil
}

// read reads one page, or with --all every page. page takes a page in and
// answers where the next one begins.
func (p *paged) read(page func(before string, limit int) (next ckpt.Ref, err error)) (next ckpt.Ref, err error) {
	limit := p.Limit
	if p.All {
		limit = ckpt.MaxLimit
	}
	err = eachPage(p.Before, func(before string) (string, bool, error) {
		next, err = page(before, limit)
		return string(next), p.All && next != "", err
	})
	return next, err
}

// eachPage calls page for one page after the other. page answers where the next
// one begins, and whether there is one.
func eachPage[Cursor any](from Cursor, page func(Cursor) (next Cursor, more bool, err error)) error {
	for more := true; more; {
		var err error
		if from, more, err = page(from); err != nil {
			return err
		}
	}
	return nil
}

func (p *paged) more(a *app, next ckpt.Ref) {
	if next != "" {
		a.Tell("there are more: --all, or --before %s", next)
	}
}
