package rewind

import (
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/tree"
)

// Action is what to do with a path.
type Action string

// The actions.
const (
	Write  Action = "write"  // a file or link is put in its place
	Mode   Action = "mode"   // a file gets its permission bits
	Remove Action = "remove" // a file or link is removed
)

// Item is one path of a plan.
type Item struct {
	Path   string          `json:"path"`
	Do     Action          `json:"do"`
	Before *ckpt.TreeEntry `json:"before,omitempty"` // what is there now; nil for nothing
	After  *ckpt.TreeEntry `json:"after,omitempty"`  // what must be there after the restore; nil for nothing
	Aside  bool            `json:"aside,omitempty"`  // keep what is there as NAME.before-ID
	Staged string          `json:"staged,omitempty"` // the path at which the new content is staged
	From   string          `json:"from,omitempty"`   // the path of a file with the new content; "" if the store has it
	Refuse string          `json:"refuse,omitempty"` // why nothing is done with the path

	made, placed bool // the staged file exists; it has become the file
}

// Seen is what is at a path now.
type Seen struct {
	Entry    *ckpt.TreeEntry // a file or link; nil for anything else
	Modified time.Time       // of the entry
	Folder   bool
	Odd      string // why it cannot be replaced; "" for no reason
	Parent   string // the file or link that is where a folder of the path must be
}

func (s *Seen) absent() bool { return s.Entry == nil && !s.Folder && s.Odd == "" }

func same(a, b ckpt.TreeEntry) bool { return tree.SameContent(a, b) && a.Mode == b.Mode }

// Stays is a path that a plan leaves alone, and the reason.
type Stays struct {
	Path string `json:"path"`
	Why  string `json:"why"`
}

// Plan is what a restore will do.
type Plan struct {
	Items   []Item  `json:"items"`
	Stays   []Stays `json:"stays"`
	Partial bool    `json:"partial"` // the tree is incomplete, and the options do not allow that

	Unknown []string `json:"unknown,omitempty"` // of the paths in the options: those that no tree has
}

// Refused returns the items that prevent the restore.
func (p *Plan) Refused() (list []Item) {
	for _, item := range p.Items {
		if item.Refuse != "" {
			list = append(list, item)
		}
	}
	return list
}
