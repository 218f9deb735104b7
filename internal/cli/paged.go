package cli

import (
	"strings"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

// Paged are the flags of long lists.
type Paged struct {
	Limit  int    `short:"n" default:"50" help:"How many. Default: ${default}."`
	Before string `help:"Continue after this cursor of the previous page." placeholder:"CURSOR"`
	All    bool   `help:"All of them, however many."`
}

// cursorMark is printed before a cursor for people, because a cursor can look like the
// number of a checkpoint. It is optional in the input.
const cursorMark = "cursor:"

// Check refuses a limit that is out of range.
func (p *Paged) Check() error {
	if p.Limit < 1 || p.Limit > ckpt.MaxLimit {
		return Usagef("--limit is %d; it must be between 1 and %d, or use --all", p.Limit, ckpt.MaxLimit)
	}
	return nil
}

// Read reads one page, or with --all every page. page processes a page and returns where
// the next one begins.
func (p *Paged) Read(page func(before string, limit int) (next ckpt.Ref, err error)) (next ckpt.Ref, err error) {
	limit := p.Limit
	if p.All {
		limit = ckpt.MaxLimit
	}
	err = EachPage(strings.TrimPrefix(p.Before, cursorMark), func(before string) (string, bool, error) {
		next, err = page(before, limit)
		return string(next), p.All && next != "", err
	})
	return next, err
}

// EachPage calls page for one page after another. page returns where the next one begins,
// and whether there is one.
func EachPage[Cursor any](from Cursor, page func(Cursor) (next Cursor, more bool, err error)) error {
	for more := true; more; {
		var err error
		if from, more, err = page(from); err != nil {
			return err
		}
	}
	return nil
}

// More says how to continue if there are more.
func (p *Paged) More(a *App, next ckpt.Ref) {
	if next != "" {
		a.Tell("there are more: use --all, or --before %s%s", cursorMark, next)
	}
}
