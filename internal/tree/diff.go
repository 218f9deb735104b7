package tree

import (
	ckpt "github.com/ckptsidecar/ckptsidecar"
)

// Diff returns how two sorted lists of entries differ, sorted by path.
func Diff(before, after []ckpt.TreeEntry) []ckpt.FileChange {
	var list []ckpt.FileChange
	for len(before) > 0 || len(after) > 0 {
		switch {
		case len(after) == 0 || len(before) > 0 && before[0].Path < after[0].Path:
			list = append(list, ckpt.FileChange{Path: before[0].Path, Change: ckpt.FileRemoved, Before: &before[0]})
			before = before[1:]
		case len(before) == 0 || after[0].Path < before[0].Path:
			list = append(list, ckpt.FileChange{Path: after[0].Path, Change: ckpt.FileAdded, After: &after[0]})
			after = after[1:]
		default:
			if before[0] != after[0] {
				list = append(list, ckpt.FileChange{
					Path: before[0].Path, Change: changeOf(before[0], after[0]), Before: &before[0], After: &after[0],
				})
			}
			before, after = before[1:], after[1:]
		}
	}
	return list
}

func changeOf(before, after ckpt.TreeEntry) ckpt.FileChangeKind {
	if SameContent(before, after) {
		return ckpt.FileMode
	}
	return ckpt.FileModified
}

// SameContent reports whether two entries have the same bytes or the same target,
// whatever their permission bits are.
func SameContent(a, b ckpt.TreeEntry) bool {
	return a.IsLink() == b.IsLink() && a.Size == b.Size && a.SHA256 == b.SHA256 && a.Target == b.Target
}

// Change returns how to turn one list of entries into another: entries to set, and
// paths to remove.
func Change(from, to []ckpt.TreeEntry) (set []ckpt.TreeEntry, removed []string) {
	for _, c := range Diff(from, to) {
		if c.After == nil {
			removed = append(removed, c.Path)
		} else {
			set = append(set, *c.After)
		}
	}
	return set, removed
}

// Apply applies the result of Change to a sorted base, and returns a sorted list. It
// refuses a path to remove that is not in the base, and a path that is named twice.
func Apply(base []ckpt.TreeEntry, set []ckpt.TreeEntry, removed []string) ([]ckpt.TreeEntry, error) {
	changes := make(map[string]*ckpt.TreeEntry, len(set)+len(removed)) // nil if removed
	for i := range set {
		if _, twice := changes[set[i].Path]; twice {
			return nil, ckpt.Errorf(ckpt.CodeInvalid, "the path %q is named twice", cut(set[i].Path))
		}
		changes[set[i].Path] = &set[i]
	}
	for _, path := range removed {
		if _, twice := changes[path]; twice {
			return nil, ckpt.Errorf(ckpt.CodeInvalid, "the path %q is named twice", cut(path))
		}
		changes[path] = nil
	}
	list := make([]ckpt.TreeEntry, 0, len(base)+len(set))
	for _, e := range base {
		now, changed := changes[e.Path]
		delete(changes, e.Path)
		switch {
		case !changed:
			list = append(list, e)
		case now != nil:
			list = append(list, *now)
		}
	}
	for path, e := range changes {
		if e == nil {
			return nil, ckpt.Errorf(ckpt.CodeInvalid, "the path %q is to be removed and is not in the base", cut(path))
		}
		list = append(list, *e)
	}
	t := ckpt.Tree{Entries: list}
	Sort(&t)
	return t.Entries, nil
}
