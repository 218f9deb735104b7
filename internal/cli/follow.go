package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"maps"
	"slices"

	ckpt "github.com/ckptsidecar/ckptsidecar"
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
	Concerns func(*survey.Change) bool // whether a change can affect the list
	// Read reads one page, the newest entries first. before is "", or where the last page has said that the next one
	// begins. next is "" on the last page.
	Read    func(before string) (page []Entry, next ckpt.Ref, err error)
	Version func(*Entry) string               // differs if the entry must be shown again
	Changed func(*Entry) ckpt.Time            // the list is in the order of these times; nil if it is in another order
	Table   func(entries []Entry) *term.Table // the entries for people
}

// mostPages is how many pages of new entries are read after a change.
const mostPages = 20

// shown remembers which versions of entries were shown.
type shown struct {
	known  map[string]int // the read that had it last, by version
	reads  int
	newest ckpt.Time // of the changes that were read
}

// shownMost is how many versions are remembered at least.
const shownMost = 10_000

// trim forgets the versions that were read longest ago. The last read had this many entries.
func (s *shown) trim(read int) {
	n := len(s.known) - shownMost - 2*read
	if n <= 0 {
		return
	}
	versions := slices.SortedFunc(maps.Keys(s.known), func(a, b string) int { return cmp.Compare(s.known[a], s.known[b]) })
	for _, version := range versions[:n] {
		delete(s.known, version)
	}
}

// fresh reads the entries that were not shown yet, oldest first. It reads until a page has an entry that was there before:
// one that has not changed since the last read, or in a list in another order, one that was shown. At the beginning, one
// page is enough.
func (w *Watched[Entry]) fresh(s *shown, began bool) (list []Entry, err error) {
	s.reads++
	read, before, newest := 0, ckpt.Ref(""), s.newest
	for range mostPages {
		page, next, err := w.Read(string(before))
		if err != nil {
			return nil, err
		}
		read += len(page)
		met := false
		for i := range page {
			if w.Changed != nil {
				at := w.Changed(&page[i])
				if began && at.Before(s.newest.Time) {
					met = true
					continue
				}
				if at.After(newest.Time) {
					newest = at
				}
			}
			version := w.Version(&page[i])
			_, known := s.known[version]
			s.known[version] = s.reads
			if !known {
				list = append(list, page[i])
			}
			met = met || known && w.Changed == nil
		}
		if before = next; met || !began || next == "" {
			break
		}
	}
	s.newest = newest
	s.trim(read)
	slices.Reverse(list)
	return list, nil
}

// Follow writes the entries of a list, and then each new or changed entry, until ctx ends.
// With --json, each is one line.
func Follow[Entry any](ctx context.Context, a *App, w Watched[Entry]) error {
	all, began := &shown{known: map[string]int{}}, false
	show := func(fresh []Entry) error {
		if !a.JSON {
			t := w.Table(fresh)
			if began {
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
		fresh, err := w.fresh(all, began)
		if err == nil && (len(fresh) > 0 || !began) {
			err = show(fresh)
			began = true
		}
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
