package cli

import (
	"context"
	"encoding/json"

	"github.com/ckptsidecar/ckptsidecar/internal/cli/term"
	"github.com/ckptsidecar/ckptsidecar/internal/ipc/client"
	"github.com/ckptsidecar/ckptsidecar/internal/survey"
)

// Following is the flag of lists that can be followed.
type Following struct {
	Follow bool `short:"f" help:"Print new and changed entries as they come, also across restarts of the daemon, until Ctrl-C. The newest are last."`
}

// Check refuses flags that only make sense for one page.
func (f *Following) Check(p *Paged) error {
	if f.Follow && (p.Before != "" || p.All) {
		return Usagef("--follow starts at the newest entries: leave out --before and --all")
	}
	return nil
}

// Watched is a list that is followed.
type Watched[Entry any] struct {
	Concerns func(*survey.Change) bool         // whether a change can affect the list
	Read     func() ([]Entry, error)           // the newest entries, oldest first
	Version  func(*Entry) string               // differs if the entry must be shown again
	Table    func(entries []Entry) *term.Table // the entries for people
}

// Follow writes the entries of a list, and then each new or changed entry, until ctx ends.
// With --json, each is one line.
func Follow[Entry any](ctx context.Context, a *App, w Watched[Entry]) error {
	var seen map[string]bool
	show := func(fresh []Entry) error {
		if !a.JSON {
			t := w.Table(fresh)
			if seen != nil {
				t.Headless()
			}
			t.Write(a.Stdout, a.Out)
			return nil
		}
		for i := range fresh {
			if err := a.writeLine(&fresh[i]); err != nil {
				return err
			}
		}
		return nil
	}
	err := client.Operator{Client: a.Client()}.Changes(ctx, func(c survey.Change) error {
		if c.What != survey.ChangedBegin && c.What != survey.ChangedAll && !w.Concerns(&c) {
			return nil
		}
		entries, err := w.Read()
		if err != nil {
			return err
		}
		var fresh []Entry
		now := make(map[string]bool, len(entries))
		for i := range entries {
			version := w.Version(&entries[i])
			if now[version] = true; !seen[version] {
				fresh = append(fresh, entries[i])
			}
		}
		if len(fresh) > 0 || seen == nil {
			err = show(fresh)
		}
		seen = now
		return err
	})
	if ctx.Err() != nil { // Ctrl-C ends following
		return nil
	}
	return err
}

// writeLine writes an entry as one line of JSON, or the part of it that -q, --format or
// --jq chooses.
func (a *App) writeLine(entry any) error {
	if a.Shaped() {
		return a.WriteJSON(entry)
	}
	line, err := json.Marshal(entry)
	if err != nil {
		return err
	}
	_, err = a.Data().Write(append(line, '\n'))
	return err
}
