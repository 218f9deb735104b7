package hook

import (
	"encoding/json"
	"slices"
	"strings"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

// writers are the tools of coding agents that write files, in lower case without
// separators between words.
var writers = map[string]bool{
	"write": true, "edit": true, "multiedit": true, "notebookedit": true, "writefile": true, "replace": true, patchTool: true,
	"createfile": true, "strreplace": true, "editfile": true,
}

// patchTool is the writer whose arguments name files in the lines of a patch.
const patchTool = "applypatch"

// pathMembers are the arguments that name a file.
var pathMembers = []string{"file_path", "path", "notebook_path", "absolute_path", "filename"}

// patchLines are the beginnings of the lines in a patch that name files.
var patchLines = []string{"*** Add File: ", updateLine, deleteLine, "*** Move to: "}

const (
	updateLine = "*** Update File: "
	deleteLine = "*** Delete File: "
)

// writer returns the name of a tool as writers has it.
func writer(tool string) string {
	return strings.ToLower(strings.NewReplacer("_", "", "-", "", ".", "").Replace(tool))
}

// creators are the writers that need no file. The others can only change one, unless the text
// that they replace is empty.
var creators = map[string]bool{"write": true, "writefile": true, "createfile": true}

// oldMembers are the arguments with the text that is replaced.
var oldMembers = []string{"old_string", "old_str"}

// Written is a file that a call of a tool writes.
type Written struct {
	Path  string // as the call names it
	Edits bool   // the call succeeds only if the file exists
}

// Writes returns the files that a call of a tool writes, as its arguments name them. The
// arguments of a shell name none.
func Writes(tool string, args ckpt.JSON) (files []Written) {
	name := writer(tool)
	if !writers[name] {
		return nil
	}
	var members map[string]any
	if json.Unmarshal(args, &members) != nil {
		return nil
	}
	for _, member := range pathMembers {
		if path, is := members[member].(string); is && path != "" {
			files = append(files, Written{path, !creators[name] && !replacesNothing(members)})
		}
	}
	if name != patchTool {
		return files
	}
	for _, value := range members {
		text, _ := value.(string)
		for line := range strings.Lines(text) {
			if file, is := patched(line); is {
				files = append(files, file)
			}
		}
	}
	return files
}

// changes is what Claude Code says with the result of a shell about the files that changed meanwhile.
type changes struct {
	Diff struct {
		Files []struct {
			Path    string `json:"filePath"`
			Created bool   `json:"created"`
		} `json:"files"`
		Changed []string `json:"changedFiles"` // also those that are not in Files
	} `json:"bashEditDiff"`
}

// Changed returns the files that a call of a tool changed, as its result names them.
func Changed(result ckpt.JSON) (files []Written) {
	var r changes
	if json.Unmarshal(result, &r) != nil {
		return nil
	}
	created := map[string]bool{}
	for _, f := range r.Diff.Files {
		created[f.Path] = f.Created
	}
	for _, path := range r.Diff.Changed {
		files = append(files, Written{path, !created[path]})
	}
	return files
}

// keptResult returns the result of a tool as it is kept. If it is large, the names of the files that changed stay.
func keptResult(result ckpt.JSON) ckpt.JSON {
	var r changes
	if len(result) <= maxKept || json.Unmarshal(result, &r) != nil || len(r.Diff.Changed) == 0 {
		return kept(result)
	}
	short := cut(result)
	if names, err := json.Marshal(r.Diff); err == nil && len(names) <= maxKept/4 {
		short["bashEditDiff"] = json.RawMessage(names)
	}
	return encoded(short)
}

// replacesNothing reports whether the text to replace is empty. Such a call creates the file.
func replacesNothing(args map[string]any) bool {
	if edits, is := args["edits"].([]any); is && len(edits) > 0 {
		args, _ = edits[0].(map[string]any)
	}
	return slices.ContainsFunc(oldMembers, func(member string) bool { return args[member] == "" })
}

// patched returns the file that a line of a patch names.
func patched(line string) (file Written, is bool) {
	line = strings.TrimRight(line, "\r\n")
	for _, begin := range patchLines {
		if path, is := strings.CutPrefix(line, begin); is {
			return Written{path, begin == updateLine || begin == deleteLine}, true
		}
	}
	return Written{}, false
}

// keptArgs returns the arguments of a tool as they are kept. If they are large, the members that
// name the files that the call writes stay, so that Writes still finds them.
func keptArgs(tool string, args ckpt.JSON) ckpt.JSON {
	name := writer(tool)
	var members map[string]any
	if len(args) <= maxKept || !writers[name] || json.Unmarshal(args, &members) != nil {
		return kept(args)
	}
	short := cut(args)
	for _, member := range pathMembers {
		if path, is := members[member].(string); is && len(path) <= maxPath {
			short[member] = path
		}
	}
	if replacesNothing(members) {
		short[oldMembers[0]] = ""
	}
	if name == patchTool {
		for member, value := range members {
			text, _ := value.(string)
			if _, is := short[member]; is || text == "" {
				continue
			}
			if lines := fileLines(text); lines != "" {
				short[member] = lines
			}
		}
	}
	return encoded(short)
}

// maxPath is the most bytes of a path that is kept of large arguments.
const maxPath = 4 << 10

// fileLines returns the lines of a patch that name files, up to a quarter of what is kept.
func fileLines(patch string) string {
	var lines strings.Builder
	for line := range strings.Lines(patch) {
		if _, is := patched(line); is && lines.Len()+len(line) <= maxKept/4 {
			lines.WriteString(line)
		}
	}
	return lines.String()
}
