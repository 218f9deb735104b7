package files

import (
	"context"
	"errors"
	"fmt"
	"slices"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/tree"
)

// Store takes trees and contents: it is the daemon.
type Store interface {
	MissingContents(ctx context.Context, agent string, sums []string) (*ckpt.ContentsMissing, error)
	PutContents(ctx context.Context, agent string, contents []ckpt.FileContent) (*ckpt.ContentsStored, error)
	PutTree(ctx context.Context, r ckpt.TreeRequest) (*ckpt.TreeStored, error)
}

const (
	// fewContents is how many contents are sent without first asking which of them the store
	// has.
	fewContents = 32
	// batchBytes is the most bytes in one call.
	batchBytes = 32 << 20
	// storeTries is how often a tree is sent again if the store lacks something for it.
	storeTries = 4
)

// Put sends what was found to an agent's store, as far as the store does not have it. x is
// what was known before the scan. Contents that the store refuses are left out, so the tree
// can become a different one.
func (x *Index) Put(ctx context.Context, to Store, agent string, f *Found) (*ckpt.TreeStored, error) {
	u := &upload{index: x, to: to, agent: agent, found: f, refused: map[string]ckpt.LeftOutBecause{}}
	if id := x.Stored[agent]; id != "" && id == x.Tree.ID {
		u.base = &x.Tree
	}
	if err := u.changedContents(ctx); err != nil {
		return nil, err
	}
	for range storeTries {
		stored, err := u.tree(ctx)
		if err == nil && stored.ID != f.Tree.ID {
			return nil, ckpt.Errorf(ckpt.CodeInternal,
				"the daemon gives the tree the id %s, and this program %s: install the same version of both", stored.ID, f.Tree.ID)
		}
		if err == nil {
			x.Stored[agent] = stored.ID
			return stored, nil
		}
		if ckpt.CodeOf(err) != ckpt.CodeFilesMissing {
			return nil, err
		}
		if err := u.missing(ctx, err); err != nil {
			return nil, err
		}
	}
	return nil, ckpt.Errorf(ckpt.CodeBusy, "the daemon still lacks contents of the tree after several attempts: try again")
}

// upload is a Put that is under way.
type upload struct {
	index   *Index
	to      Store
	agent   string
	found   *Found
	base    *ckpt.Tree // a tree that the store has; nil for none
	refused map[string]ckpt.LeftOutBecause
}

// changedContents sends the contents that the base does not have.
func (u *upload) changedContents(ctx context.Context) error {
	var before []ckpt.TreeEntry
	if u.base != nil {
		before = u.base.Entries
	}
	set, _ := tree.Change(before, u.found.Tree.Entries)
	list := contentsOf(set)
	if len(list) > fewContents {
		var err error
		if list, err = u.asked(ctx, list); err != nil {
			return err
		}
	}
	return u.send(ctx, list)
}

// contentsOf returns one entry for each content.
func contentsOf(entries []ckpt.TreeEntry) (list []ckpt.TreeEntry) {
	seen := map[string]bool{}
	for _, e := range entries {
		if !e.IsLink() && !seen[e.SHA256] {
			seen[e.SHA256] = true
			list = append(list, e)
		}
	}
	return list
}

// asked returns those entries of a list whose contents the store lacks.
func (u *upload) asked(ctx context.Context, list []ckpt.TreeEntry) (missing []ckpt.TreeEntry, err error) {
	for part := range slices.Chunk(list, ckpt.MaxContentsAsked) {
		var sums []string
		for _, e := range part {
			sums = append(sums, e.SHA256)
		}
		answer, err := u.to.MissingContents(ctx, u.agent, sums)
		if err != nil {
			return nil, err
		}
		wanted := map[string]bool{}
		for _, sum := range answer.Missing {
			wanted[sum] = true
		}
		for _, e := range part {
			if wanted[e.SHA256] {
				missing = append(missing, e)
			}
		}
	}
	return missing, nil
}

// send reads contents, and sends them in calls of limited size.
func (u *upload) send(ctx context.Context, list []ckpt.TreeEntry) error {
	var batch []ckpt.FileContent
	size := 0
	flush := func() error {
		if len(batch) == 0 {
			return nil
		}
		answer, err := u.to.PutContents(ctx, u.agent, batch)
		if err != nil {
			return err
		}
		for _, r := range answer.Refused {
			u.refused[r.SHA256] = r.Why
		}
		batch, size = nil, 0
		return nil
	}
	for _, e := range list {
		data, err := u.found.Content(e)
		if err != nil {
			// It has changed since the scan, or was removed: the tree leaves it out.
			u.refused[e.SHA256] = ckpt.LeftOutUnstable
			continue
		}
		if size+len(data) > batchBytes {
			if err := flush(); err != nil {
				return err
			}
		}
		was := u.index.records[e.Path].entry.SHA256
		if was == e.SHA256 {
			was = ""
		}
		batch = append(batch, ckpt.FileContent{SHA256: e.SHA256, Was: was, Data: data})
		size += len(data) + 160
	}
	if err := flush(); err != nil {
		return err
	}
	if len(u.refused) > 0 {
		u.found.Without(u.refused)
	}
	return nil
}

// tree sends the tree as its difference from the base. If the difference is too large for one
// call, it is sent as several trees, each a change to the one before. Nothing names the trees
// in between, so they are removed by themselves.
func (u *upload) tree(ctx context.Context) (stored *ckpt.TreeStored, err error) {
	t := &u.found.Tree
	r := ckpt.TreeRequest{
		Agent: u.agent, Root: t.Root, GitHead: t.GitHead, CapturedAt: t.CapturedAt, Complete: t.Complete, LeftOut: t.LeftOut, Set: t.Entries,
	}
	if u.base != nil {
		r.Base = u.base.ID
		r.Set, r.Removed = tree.Change(u.base.Entries, t.Entries)
	}
	for _, part := range partsOf(r, partBytes) {
		if stored != nil {
			part.Base = stored.ID
		}
		if stored, err = u.to.PutTree(ctx, part); err != nil {
			return nil, err
		}
	}
	return stored, nil
}

// partBytes is about the largest body of a call that stores a tree.
const partBytes = ckpt.MaxTreeBody / 2

// partsOf cuts a tree into changes of at most so many bytes each. Removals come first,
// because a file can take the place of a folder.
func partsOf(r ckpt.TreeRequest, most int) (parts []ckpt.TreeRequest) {
	part := ckpt.TreeRequest{Agent: r.Agent, Base: r.Base, Root: r.Root, GitHead: r.GitHead, CapturedAt: r.CapturedAt}
	size := 0
	for _, l := range r.LeftOut {
		size += textBytes(l.Path) + 40
	}
	last := size // the last part names what was left out
	size = 0
	add := func(n int) {
		if size+n > most && size > 0 {
			parts = append(parts, part)
			part.Set, part.Removed, size = nil, nil, 0
		}
		size += n
	}
	for _, path := range r.Removed {
		add(textBytes(path) + 3)
		part.Removed = append(part.Removed, path)
	}
	for _, e := range r.Set {
		add(textBytes(e.Path) + textBytes(e.Target) + 160)
		part.Set = append(part.Set, e)
	}
	if size > 0 && size+last > ckpt.MaxTreeBody*3/4 {
		parts = append(parts, part)
		part.Set, part.Removed = nil, nil
	}
	part.Complete, part.LeftOut = r.Complete, r.LeftOut
	return append(parts, part)
}

// textBytes returns the most bytes that a text takes as JSON.
func textBytes(s string) int {
	n := len(s)
	for i := range len(s) {
		switch c := s[i]; {
		case c < 0x20, c == '"', c == '\\', c == '<', c == '>', c == '&', c == 0x7f, c == 0xe2: // 0xe2 begins U+2028
			n += 5
		}
	}
	return n
}

// missing sends what the store has reported as missing.
func (u *upload) missing(ctx context.Context, err error) error {
	var e *ckpt.Error
	if !errors.As(err, &e) || len(e.Missing) == 0 {
		return fmt.Errorf("the daemon lacks contents and does not say which: %w", err)
	}
	if u.base != nil && slices.Contains(e.Missing, u.base.ID) {
		u.base = nil
		return u.changedContents(ctx)
	}
	var list []ckpt.TreeEntry
	for _, entry := range contentsOf(u.found.Tree.Entries) {
		if slices.Contains(e.Missing, entry.SHA256) {
			list = append(list, entry)
		}
	}
	return u.send(ctx, list)
}
