package filescmd

import (
	"path/filepath"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/hook"
	"github.com/ckptsidecar/ckptsidecar/internal/tree"
)

// writtenBy returns the paths below a root that a step has written, if its arguments name
// them. Relative paths begin in folder.
func writtenBy(s *ckpt.Step, root, folder string) (paths []string) {
	for _, path := range hook.Writes(s.Name, s.Args) {
		if !filepath.IsAbs(path) {
			path = filepath.Join(folder, path)
		}
		relative, err := filepath.Rel(root, path)
		if relative = filepath.ToSlash(relative); err == nil && tree.CheckPath(relative) == nil {
			paths = append(paths, relative)
		}
	}
	return paths
}
