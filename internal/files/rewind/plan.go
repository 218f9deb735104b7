package rewind

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/tree"
)

// Wish is what is known before files are brought back.
type Wish struct {
	Target []ckpt.TreeEntry     // the files of the checkpoint's tree
	Gone   []ckpt.LeftOut       // what that tree has left out
	Whole  bool                 // that tree is complete
	Later  [][]ckpt.FileChange  // the changes from that tree to each later tree of the run, oldest first; only paths but for the last
	Wrote  map[string]bool      // paths that the run's write tools have named since the checkpoint
	Edited map[string]bool      // of these: those that a tool edited before one created them
	Fresh  map[string]time.Time // paths that they have written since the newest tree, and when the last write had ended
	Listed map[string]bool      // of the paths in Fresh: those that a tree made now would have
	Differ map[string]bool      // paths of the target that have other contents now
	Others map[string]string    // paths that another running run has written since, with the name of that run
	Folds  bool                 // the file system ignores the case of letters
}

// Options are what the user has allowed.
type Options struct {
	Paths     []string // only these, and what is below them; all if empty
	Remove    bool     // remove what was created since, whoever created it
	Partial   bool     // also restore from an incomplete tree
	Aside     bool     // keep under another name what has changed since; what cannot be replaced stays
	Overwrite bool     // replace what has changed since; what cannot be replaced stays
}

// looker looks at paths of the folder.
type looker interface {
	look(path string) Seen
	glance(path string) Seen               // without the bytes of files
	below(folder string) ([]string, error) // the paths of all files, links and the like below a folder
}

// Make plans how the paths get the state in the tree. It considers the paths in which
// the tree and the run's later trees differ, the paths that the run's tools have
// written since the newest tree, and files of the tree that do not exist. Other files that
// differ from the tree stay, unless the options name them or say what to do with them.
func Make(w *Wish, at *Folder, o Options) *Plan {
	m := &maker{Wish: w, at: at, o: o, plan: &Plan{Partial: !w.Whole && !o.Partial}, target: map[string]*ckpt.TreeEntry{},
		gone: map[string]bool{}}
	for i := range w.Target {
		m.target[w.Target[i].Path] = &w.Target[i]
	}
	for _, l := range w.Gone {
		m.gone[l.Path] = true
	}
	m.newest = maps.Clone(m.target)
	considered := map[string]bool{}
	m.kept = maps.Clone(w.Listed)
	if m.kept == nil {
		m.kept = map[string]bool{}
	}
	for n, changes := range w.Later {
		for _, c := range changes {
			considered[c.Path], m.kept[c.Path] = true, true
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
	for _, path := range slices.Sorted(maps.Keys(w.Differ)) {
		switch {
		case considered[path] || !chosen(o.Paths, path):
		case len(o.Paths) > 0 || o.Aside || o.Overwrite:
			considered[path] = true
		default:
			m.stays(path, changedSince+"; name it, or add --aside or --overwrite, to restore it too")
		}
	}
	m.unknown(considered)
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

// unknown notes the paths of the options that mean no file: they are mistyped.
func (m *maker) unknown(considered map[string]bool) {
	for _, p := range m.o.Paths {
		means := func(path string) bool { return chosen([]string{p}, path) }
		known := slices.ContainsFunc(m.Gone, func(l ckpt.LeftOut) bool { return means(l.Path) })
		for path := range m.target {
			known = known || means(path)
		}
		for path := range considered {
			known = known || means(path)
		}
		if !known {
			m.plan.Unknown = append(m.plan.Unknown, p)
		}
	}
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
	target map[string]*ckpt.TreeEntry // what must be there after the restore
	newest map[string]*ckpt.TreeEntry // what the run's newest tree has; nil for nothing
	kept   map[string]bool            // what some tree has, or would have now
	gone   map[string]bool            // what the checkpoint's tree has left out
}

func (m *maker) stays(path, why string) { m.plan.Stays = append(m.plan.Stays, Stays{path, why}) }

// leftOut reports that the checkpoint's tree left out the path, so it does not say what
// was there.
func (m *maker) leftOut(path string) bool {
	for at := path; at != ""; at = parent(at) {
		if m.gone[at] {
			return true
		}
	}
	return false
}

// consider plans one path.
func (m *maker) consider(path string) {
	if m.leftOut(path) {
		return // it is reported with the others that were left out
	}
	seen, after := m.at.look(path), m.target[path]
	if after == nil && seen.absent() || after != nil && seen.Entry != nil && same(*seen.Entry, *after) {
		return // it is in the right state already
	}
	if seen.Odd == errElsewhere.Error() || seen.Odd != "" && (m.o.Aside || m.o.Overwrite) {
		m.stays(path, seen.Odd) // otherwise one such file would prevent each restore
		return
	}
	item := Item{Path: path, Before: seen.Entry, After: after, Do: Write}
	switch {
	case after == nil:
		item.Do = Remove
		if seen.Folder {
			return // a folder is removed with its last file
		}
		if seen.Parent != "" {
			return // nothing is there: a file has replaced the folder of the path
		}
		if why := m.staysBecause(path); why != "" {
			m.stays(path, why)
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

// staysBecause returns why a file that the checkpoint's tree does not have is not removed, ""
// if it is. It may have existed already: the tree does not have ignored files.
func (m *maker) staysBecause(path string) string {
	switch {
	case !m.kept[path]:
		return "checkpoints do not contain it, so it may be older"
	case m.o.Remove:
		return ""
	case m.Edited[path]:
		return "a tool edited it before one created it, so it may be older; --remove removes it"
	case !m.Wrote[path]:
		return "it was created after the checkpoint; --remove removes it"
	case !m.Whole:
		return "the checkpoint's list of files is incomplete, so it may be older; --remove removes it"
	}
	return ""
}

// changedSince is why a file is not replaced that no checkpoint has as it is.
const changedSince = "it has changed since the run's newest checkpoint"

// afterWrite is how long after the end of a tool's call a file may have changed and still
// counts as written by it. A hook may format the file.
const afterWrite = 2 * time.Second

// refusal returns why what is at a path must not be replaced, "" if it may be.
func (m *maker) refusal(path string, seen *Seen) string {
	switch {
	case seen.Odd != "":
		return seen.Odd
	case seen.Entry == nil: // nothing is lost; ways checks folders that are in the way
		return ""
	case m.Others[path] != "":
		return fmt.Sprintf("run %s, which has not ended, has written it", m.Others[path])
	case !m.Fresh[path].IsZero() && !seen.Modified.After(m.Fresh[path].Add(afterWrite)):
		return ""
	}
	newest := m.newest[path]
	if newest == nil || !tree.SameContent(*newest, *seen.Entry) {
		return changedSince
	}
	return ""
}

// foldings refuses paths that would share one place in this file system.
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

// ways refuses items that files, links or folders are in the way of, unless these are
// removed too.
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

// Back plans how the paths of a journal get back their state from before the restore. If that
// was itself to take one back, they get their state from before that one. undo is the tree
// that was made before.
func Back(j *Journal, undo []ckpt.TreeEntry, at *Folder, o Options) *Plan {
	had := map[string]*ckpt.TreeEntry{}
	for i := range undo {
		had[undo[i].Path] = &undo[i]
	}
	m := &maker{Wish: &Wish{}, at: at, plan: &Plan{}}
	for _, item := range j.Items {
		seen, before, restored, from := at.look(item.Path), had[item.Path], item.After, ""
		switch {
		case j.TakesBack:
			before, restored, from = item.After, item.Before, item.From
		case item.Before == nil:
			before = nil
		case before == nil: // it could not be saved, and was only moved aside
			before, from = item.Before, j.asideName(&item)
		}
		back := Item{Path: item.Path, Do: Write, Before: seen.Entry, After: before, From: from}
		switch {
		case before == nil && seen.absent(), before == nil && seen.Parent != "", before == nil && seen.Folder,
			before != nil && seen.Entry != nil && same(*seen.Entry, *before):
			continue
		case before == nil:
			back.Do = Remove
		case seen.Entry != nil && tree.SameContent(*seen.Entry, *before):
			back.Do = Mode
		}
		ours := seen.Entry == nil || restored != nil && tree.SameContent(*seen.Entry, *restored)
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
