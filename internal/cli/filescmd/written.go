package filescmd

import (
	"path/filepath"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/hook"
	"github.com/ckptsidecar/ckptsidecar/internal/tree"
)

// writtenBy returns the files below a root that a step has written, if its arguments or its result name
// them. Relative paths begin in folder.
func writtenBy(s *ckpt.Step, root, folder string) (files []hook.Written) {
	for _, file := range append(hook.Writes(s.Name, s.Args), hook.Changed(s.Result)...) {
		path := file.Path
		if !filepath.IsAbs(path) {
			path = filepath.Join(folder, path)
		}
		relative, is := below(root, path)
		if !is { // the path of a root has no links
			relative, is = below(root, withoutLinks(path))
		}
		if is {
			files = append(files, hook.Written{Path: relative, Edits: file.Edits})
		}
	}
	return files
}

// below returns a path as a tree of this root would have it.
func below(root, path string) (relative string, is bool) {
	relative, err := filepath.Rel(root, path)
	relative = filepath.ToSlash(relative)
	return relative, err == nil && tree.CheckPath(relative) == nil
}

// withoutLinks returns a path in which the folders that exist are no links.
func withoutLinks(path string) string {
	folder := filepath.Dir(path)
	if folder == path {
		return path
	}
	real, err := filepath.EvalSymlinks(folder)
	if err != nil {
		real = withoutLinks(folder)
	}
	return filepath.Join(real, filepath.Base(path))
}

// firstWrites finds paths that a tool had edited before one created them.
type firstWrites struct {
	at     map[string]time.Time // the first call that wrote a path
	edited map[string]bool
}

// note notes a call that wrote a path. The calls may come in any order.
func (f *firstWrites) note(path string, at time.Time, edits bool) {
	switch first, is := f.at[path]; {
	case !is || at.Before(first):
		f.at[path], f.edited[path] = at, edits
	case at.Equal(first):
		f.edited[path] = f.edited[path] || edits
	}
}
