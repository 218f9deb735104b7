package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/cli"
	"github.com/ckptsidecar/ckptsidecar/internal/cli/term"
	"github.com/ckptsidecar/ckptsidecar/internal/cli/view"
)

type treeCmd struct {
	Agent string `arg:"" help:"The agent's name."`
	InRun string `name:"run" help:"Only this run. Default: every run." placeholder:"NAME"`
}

func (c *treeCmd) Run(ctx context.Context, a *app) error {
	return (&listCmd{Agent: c.Agent, InRun: c.InRun, Tree: true, Paged: cli.Paged{All: true, Limit: ckpt.MaxLimit}}).Run(ctx, a)
}

// history is an agent's checkpoints as a tree. A save after a restore or a fork makes a branch.
// Nothing is ever overwritten.
type history struct {
	children map[string][]*ckpt.Checkpoint // oldest first
	roots    []*ckpt.Checkpoint
	newest   map[string]string // run to id
	there    map[string]*ckpt.Checkpoint
}

func newHistory(list []ckpt.Checkpoint) *history {
	h := &history{children: map[string][]*ckpt.Checkpoint{}, newest: map[string]string{}, there: map[string]*ckpt.Checkpoint{}}
	for i := range list {
		h.there[list[i].ID] = &list[i]
	}
	sorted := make([]*ckpt.Checkpoint, len(list))
	for i := range list {
		sorted[i] = &list[i]
	}
	slices.SortFunc(sorted, func(a, b *ckpt.Checkpoint) int {
		return cmp.Or(a.CreatedAt.Compare(b.CreatedAt.Time), cmp.Compare(a.Run, b.Run), cmp.Compare(a.Seq, b.Seq))
	})
	seqs := map[string]int64{}
	for _, c := range sorted {
		if h.there[string(c.Parent)] != nil {
			h.children[string(c.Parent)] = append(h.children[string(c.Parent)], c)
		} else {
			h.roots = append(h.roots, c)
		}
		if c.Seq > seqs[c.Run] {
			seqs[c.Run], h.newest[c.Run] = c.Seq, c.ID
		}
	}
	return h
}

// trunk returns the child that continues in its parent's column: the newest of the same run, else
// the newest. It returns the other children as branches.
func (h *history) trunk(c *ckpt.Checkpoint) (trunk *ckpt.Checkpoint, branches []*ckpt.Checkpoint) {
	for _, child := range h.children[c.ID] {
		if trunk == nil || child.Run == c.Run || trunk.Run != c.Run {
			trunk = child
		}
	}
	for _, child := range h.children[c.ID] {
		if child != trunk {
			branches = append(branches, child)
		}
	}
	return trunk, branches
}

// write draws the tree, the oldest first. A chain stays in its column, so that a long history is
// not wide.
func (h *history) write(w io.Writer, s *term.Style) {
	for i, root := range h.roots {
		if i > 0 {
			term.Println(w)
		}
		if root.Parent != "" {
			term.Printf(w, "%s\n", s.Dim(fmt.Sprintf("⋮ its parent %s was removed or belongs to another run", s.ID(string(root.Parent)))))
		}
		h.chain(w, s, root, nil, "", "")
	}
}

// chain draws a checkpoint and its descendants: the first line after one prefix, the others after
// another.
func (h *history) chain(w io.Writer, s *term.Style, c, parent *ckpt.Checkpoint, first, prefix string) {
	for ; c != nil; first = prefix {
		term.Println(w, s.FitBefore(first+h.line(c, parent, s), "  "+s.Dim(s.ID(c.ID))))
		trunk, branches := h.trunk(c)
		for _, b := range branches {
			h.chain(w, s, b, c, prefix+"├─", prefix+"│ ")
		}
		c, parent = trunk, c
	}
}

// line returns the description of a checkpoint in the tree.
func (h *history) line(c, parent *ckpt.Checkpoint, s *term.Style) string {
	words := []string{"●", fmt.Sprintf("%d", c.Seq)}
	if parent == nil || parent.Run != c.Run {
		words = append(words, s.Bold("run "+c.Run))
		if from := forkOf(c, parent); from != "" {
			words = append(words, s.Yellow("⑂ fork of "+from))
		}
	}
	words = append(words, kindText(c.Kind, s), s.Time(c.CreatedAt), term.Bytes(c.Size))
	if labels := labelText(c.Labels); labels != "" {
		words = append(words, labels)
	}
	if m := view.Marks(c, s); m != "" {
		words = append(words, m)
	}
	if h.newest[c.Run] == c.ID {
		words = append(words, s.Green("← newest of "+c.Run))
	}
	return strings.Join(words, "  ")
}

// forkOf returns the checkpoint that a run's first checkpoint is a fork of. It uses the parent. If
// the parent was removed or belongs to another agent, it uses what the fork has noted. "" means
// that it is not a fork.
func forkOf(c, parent *ckpt.Checkpoint) string {
	if c.Seq != 1 {
		return ""
	}
	if parent != nil {
		return fmt.Sprintf("%s, number %d", parent.Run, parent.Seq)
	}
	var noted struct {
		Fork struct {
			Agent string `json:"agent"`
			Run   string `json:"run"`
			Seq   int64  `json:"seq"`
		} `json:"fork"`
	}
	if json.Unmarshal(c.Metadata, &noted) != nil || noted.Fork.Run == "" {
		return ""
	}
	from := fmt.Sprintf("%s, number %d", noted.Fork.Run, noted.Fork.Seq)
	if noted.Fork.Agent != c.Agent {
		from += " of " + noted.Fork.Agent
	}
	return from
}
