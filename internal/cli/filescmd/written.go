package filescmd

import (
	"encoding/json"
	"path/filepath"
	"strings"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/tree"
)

// writers are the tools of coding agents that write files, in lower case without
// separators between words.
var writers = map[string]bool{
	"write": true, "edit": true, "multiedit": true, "notebookedit": true, "writefile": true, "replace": true, "applypatch": true,
	"createfile": true, "strreplace": true, "editfile": true,
}

// pathMembers are the arguments that name a file.
var pathMembers = []string{"file_path", "path", "notebook_path", "absolute_path", "filename"}

// patchLines are the beginnings of the lines in a patch that name files.
var patchLines = []string{"*** Add File: ", "*** Update File: ", "*** Delete File: ", "*** Move to: "}

// writtenBy returns the paths below a root that a step has written, if its arguments name
// them. The arguments of a shell do not. Relative paths begin in folder.
func writtenBy(s *ckpt.Step, root, folder string) (paths []string) {
	name := strings.ToLower(strings.NewReplacer("_", "", "-", "", ".", "").Replace(s.Name))
	if !writers[name] {
		return nil
	}
	var args map[string]any
	if json.Unmarshal(s.Args, &args) != nil {
		return nil
	}
	add := func(path string) {
		if !filepath.IsAbs(path) {
			path = filepath.Join(folder, path)
		}
		relative, err := filepath.Rel(root, path)
		if relative = filepath.ToSlash(relative); err == nil && tree.CheckPath(relative) == nil {
			paths = append(paths, relative)
		}
	}
	for _, member := range pathMembers {
		if path, is := args[member].(string); is && path != "" {
			add(path)
		}
	}
	for _, value := range args {
		text, is := value.(string)
		if !is || name != "applypatch" {
			continue
		}
		for line := range strings.Lines(text) {
			for _, begin := range patchLines {
				if path, found := strings.CutPrefix(strings.TrimRight(line, "\r\n"), begin); found {
					add(path)
				}
			}
		}
	}
	return paths
}
