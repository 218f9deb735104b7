package rewind

import (
	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/tree"
)

// Action is what is done with a path.
type Action string

// The actions.
const (
	Write  Action = "write"  // a file or link gets its place
	Mode   Action = "mode"   // a file gets its permission bits
	Remove Action = "remove" // a file or link goes
)

// Item is one path of a plan.
type Item struct {
	Path   string          `json:"path"`
	Do     Action          `json:"do"`
	Before *ckpt.TreeEntry `json:"before,omitempty"` // what is there now; nil for nothing
	After  *ckpt.TreeEntry `json:"after,omitempty"`  // what shall be there; nil for nothing
	Aside  bool            `json:"aside,omitempty"`  // what is there is kept as NAME.before-ID
	Staged string          `json:"staged,omitempty"` // where the new content waits
	Refuse string          `json:"refuse,omitempty"` // why nothing is done with it
}

// Seen is what stands at a path now.
type Seen struct {
	Entry  *ckpt.TreeEntry // a file or link; nil for anything else
	Folder bool
	Odd    string // why it cannot be replaced; "" for nothing odd
	Parent string // the file or link that stands where a folder of the path must be
}

func (s *Seen) absent() bool { return s.Entry == nil && !s.Folder && s.Odd == "" }

func same(a, b ckpt.TreeEntry) bool { return tree.SameContent(a, b) && a.Mode == b.Mode }

// Stays is a path that a plan leaves alone, and why.
type Stays struct {
	Path string `json:"path"`
	Why  string `json:"why"`
}

// Plan is what would be done.
type Plan struct {
	Items   []Item  `json:"items"`
	Stays   []Stays `json:"stays"`
	Partial bool    `json:"partial"` // the tree is incomplete, and nobody has allowed that
}

// Refused are the items that stand in the way.
func (p *Plan) Refused() (list []Item) {
	for _, item := range p.Items {
		if item.Refuse != "" {
			list = append(list, item)
		}
	}
	return list
}
