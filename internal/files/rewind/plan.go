package rewind

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/tree"
)

// Wish is what is known before files are brought back.
type Wish struct {
	Target []ckpt.TreeEntry    // of the checkpoint's tree
	Gone   []ckpt.LeftOut      // what that tree has left out
	Whole  bool                // that tree is complete
	Later  [][]ckpt.FileChange // from that tree to each later one of the run, oldest first
	Wrote  map[string]bool     // paths that write tools of the run have named since the checkpoint
	Fresh  map[string]bool     // and since the newest tree
	Others map[string]string   // paths that another running run has written since, and its name
	Folds  bool                // large and small letters are the same here
}

// Options are what a person has allowed.
type Options struct {
	Paths     []string // only these, and what is below them; all where empty
	Remove    bool     // what was created since goes, whoever made it
	Partial   bool     // also from an incomplete tree
	Aside     bool     // what has changed since is kept under another name
	Overwrite bool     // what has changed since is replaced
}

// looker looks at paths of the folder.
type looker interface {
	look(path string) Seen
	glance(path string) Seen               // without the bytes
	below(folder string) ([]string, error) // all paths of files, links and the like below a folder
}

// Make plans how the paths get what the tree says. Considered are those in which
// the tree and the run's later trees do not agree, those that the run's tools
// have written since the newest, and files of the tree that are not there.
func Make(w *Wish, at *Folder, o Options) *Plan {

	m := &maker{Wish: w, at: at, o: o, plan: &Plan{Partial: !w.Whole && !o.Partial}, target: map[string]*ckpt.TreeEntry{}}
	for i := range w.Target {
		m.target[w.Target[i].Path] = &w.Target[i]
	}
	m.newest = maps.Clone(m.target)
	considered := map[string]bool{}
	for n, changes := range w.Later {
		for _, c := range changes {
			considered[c.Path] = true
			if n == len(w.Later)-1 {
				m.newest[c.Path] = c.After
			}
		}
	}
	for path := range w.Fresh {
		considered[path] = true
	}
	for path := range m.target {
		if !considered[path] {
			if seen := at.glance(path); seen.absent() && seen.Parent == "" {
				considered[path] = true
			}
		}
	}
	for _, path := range slices.Sorted(maps.Keys(considered)) {
		if tree.CheckPath(path) == nil && chosen(o.Paths, path) {
			m.consider(path)
		}
	}
	m.foldings()
	m.ways()
	for _, l := range w.Gone {
		if chosen(o.Paths, l.Path) {
			m.stays(l.Path, "the checkpoint does not contain it: "+string(l.Why))
		}
	}
	return m.plan
}

func chosen(paths []string, path string) bool {
	return len(paths) == 0 || slices.ContainsFunc(paths, func(p string) bool {
		return p == path || p == "" || p == "." || strings.HasPrefix(path, p+"/")
	})
}

type maker struct {
	*Wish
	at     looker
	o      Options
	plan   *Plan
	target map[string]*ckpt.TreeEntry // what shall be
	newest map[string]*ckpt.TreeEntry // what the run's newest tree has; nil for nothing
}

func (m *maker) stays(path, why string) { m.plan.Stays = append(m.plan.Stays, Stays{path, why}) }

// leftOut says that the checkpoint's tree does not know what the path was.
func (m *maker) leftOut(path string) bool {
	return slices.ContainsFunc(m.Gone, func(l ckpt.LeftOut) bool { return l.Path == path || strings.HasPrefix(path, l.Path+"/") })
}

// consider plans one path.
func (m *maker) consider(path string) {
	if m.leftOut(path) {
		return // it is told with the others that were left out
	}
	seen, after := m.at.look(path), m.target[path]
	if after == nil && seen.absent() || after != nil && seen.Entry != nil && same(*seen.Entry, *after) {
		return // it is as it shall be
	}
	item := Item{Path: path, Before: seen.Entry, After: after, Do: Write}
	switch {
	case after == nil:
		item.Do = Remove
		if seen.Folder {
			return // a folder goes with its last file
		}
		if seen.Parent != "" {
			return // nothing is there: a file has taken the place of its folder
		}
		if !m.o.Remove && !m.Wrote[path] {
			m.stays(path, "it was created after the checkpoint; --remove removes it")
			return
		}
	case seen.Entry != nil && tree.SameContent(*seen.Entry, *after):
		item.Do = Mode
	}
	item.Refuse = m.refusal(path, &seen)
	if item.Refuse != "" && seen.Odd == "" && seen.Entry != nil {
		switch {
		case m.o.Aside:
			item.Refuse, item.Aside = "", true
		case m.o.Overwrite:
			item.Refuse = ""
		}
	}
	m.plan.Items = append(m.plan.Items, item)
}

// refusal is why what stands at a path may not be replaced, "" where it may.
func (m *maker) refusal(path string, seen *Seen) string {
	switch {
	case seen.Odd != "":
		return seen.Odd
	case seen.Entry == nil: // nothing is lost; folders in the way are looked at with the others
		return ""
	case m.Others[path] != "":
		return fmt.Sprintf("run %s, which has not ended, has written it", m.Others[path])
	case m.Fresh[path]:
		return ""
	}
	newest := m.newest[path]
	if newest == nil || !tree.SameContent(*newest, *seen.Entry) {
		return "it has changed since the run's newest checkpoint"
	}
	return ""
}

// foldings refuses paths that have one place here.
func (m *maker) foldings() {
	if !m.Folds {
		return
	}
	folded := map[string][]string{}
	for path := range m.target {
		folded[tree.Fold(path)] = append(folded[tree.Fold(path)], path)
	}
	for i := range m.plan.Items {
		item := &m.plan.Items[i]
		if same := folded[tree.Fold(item.Path)]; len(same) > 1 || len(same) == 1 && same[0] != item.Path {
			slices.Sort(same)
			item.Refuse = fmt.Sprintf("this file system treats it as the same file as %q", same)
		}
	}
}

// ways refuses what files, links and folders stand in the way of, unless they go too.
func (m *maker) ways() {
	goes := map[string]bool{}
	for _, item := range m.plan.Items {
		if item.Do == Remove && item.Refuse == "" {
			goes[item.Path] = true
		}
	}
	for i := range m.plan.Items {
		item := &m.plan.Items[i]
		if item.Refuse != "" || item.Do == Remove {
			continue
		}
		seen := m.at.glance(item.Path)
		switch {
		case seen.Parent != "" && !goes[seen.Parent]:
			item.Refuse = fmt.Sprintf("%s is in the way: it is not a folder", seen.Parent)
		case seen.Folder:
			list, err := m.at.below(item.Path)
			if err != nil {
				item.Refuse = "a folder is in the way, and cannot be read"
			}
			for _, path := range list {
				if !goes[path] {
					item.Refuse = fmt.Sprintf("a folder is in the way, with %s in it", path)
					break
				}
			}
		}
	}
}

// Back plans how the paths of a journal get back what they had. undo is the
// tree that was made before.
func Back(j *Journal, undo []ckpt.TreeEntry, at *Folder, o Options) *Plan {
	had := map[string]*ckpt.TreeEntry{}
	for i := range undo {
		had[undo[i].Path] = &undo[i]
	}
	m := &maker{Wish: &Wish{}, at: at, plan: &Plan{}}
	for _, item := range j.Items {
		seen, before := at.look(item.Path), had[item.Path]
		if item.Before == nil {
			before = nil
		}
		back := Item{Path: item.Path, Do: Write, Before: seen.Entry, After: before}
		switch {
		case before == nil && seen.absent(), before == nil && seen.Parent != "", before == nil && seen.Folder,
			before != nil && seen.Entry != nil && same(*seen.Entry, *before):
			continue
		case before == nil:
			back.Do = Remove
		case seen.Entry != nil && tree.SameContent(*seen.Entry, *before):
			back.Do = Mode
		}
		ours := seen.Entry == nil || item.After != nil && tree.SameContent(*seen.Entry, *item.After)
		switch {
		case seen.Odd != "":
			back.Refuse = seen.Odd
		case !ours && o.Aside:
			back.Aside = true
		case !ours && !o.Overwrite:
			back.Refuse = "it has changed since the restore"
		}
		m.plan.Items = append(m.plan.Items, back)
	}
	m.ways()
	return m.plan
}
