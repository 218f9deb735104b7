package hook

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

// Snapshot is the state of a session as a checkpoint holds it. Its members are
// always there, so that none looks lost; sizes are texts, because a transcript
// that was compacted is smaller than before without anything being wrong.
type Snapshot struct {
	Product     Product    `json:"product"`
	Session     string     `json:"session"`
	Event       string     `json:"event"` // at which it was saved
	Folder      string     `json:"folder"`
	Transcript  transcript `json:"transcript"`
	Git         *gitHead   `json:"git"`
	Goal        string     `json:"goal"`         // the session's first prompt
	LastPrompt  string     `json:"last_prompt"`  // and its last
	LastMessage string     `json:"last_message"` // what the model said last, where that is told
	Plan        ckpt.JSON  `json:"plan"`         // as the model's own tool has it
	ToolCalls   int64      `json:"tool_calls"`
}

type transcript struct {
	Path  string `json:"path"`
	Bytes string `json:"bytes"`
}

type gitHead struct {
	Commit string `json:"commit"`
	Branch string `json:"branch"` // "" where none is checked out
}

// The most that a snapshot holds of each.
const (
	maxPrompt  = 4 << 10
	maxMessage = 8 << 10
	maxPlan    = 32 << 10
)

// snapshot is that of this moment, with what an earlier one knew.
func snapshot(in *Input, product Product, earlier *Snapshot, calls int64) *Snapshot {
	s := &Snapshot{}
	if earlier != nil {
		*s = *earlier
	}
	s.Product, s.Session, s.Event, s.Folder, s.ToolCalls = product, in.Session, in.Event, in.Folder, calls
	s.Git = headOf(in.Folder)
	s.Transcript = transcript{Path: in.Transcript}
	if info, err := os.Stat(in.Transcript); in.Transcript != "" && err == nil {
		s.Transcript.Bytes = strconv.FormatInt(info.Size(), 10)
	}
	if in.Prompt != "" {
		s.LastPrompt = limit(in.Prompt, maxPrompt)
		if s.Goal == "" {
			s.Goal = s.LastPrompt
		}
	}
	for _, message := range []string{in.LastMessage, in.PromptResponse} {
		if message != "" {
			s.LastMessage = limit(message, maxMessage)
		}
	}
	if plan := in.plan(); plan != nil && len(plan) <= maxPlan {
		s.Plan = plan
	}
	return s
}

func (s *Snapshot) text() (ckpt.JSON, error) {
	text, err := json.Marshal(s)
	return text, err
}

// readSnapshot is the snapshot that a checkpoint holds, nil where it is another
// state.
func readSnapshot(c *ckpt.Checkpoint) *Snapshot {
	s := new(Snapshot)
	if c == nil || json.Unmarshal(c.State, s) != nil || s.Session == "" {
		return nil
	}
	return s
}

// headOf reads which commit is checked out, without asking git, which would
// take longer than all the rest. nil where there is no repository.
func headOf(folder string) *gitHead {
	dir, common := gitDirs(folder)
	if dir == "" {
		return nil
	}
	head := firstWord(filepath.Join(dir, "HEAD"), "ref:")
	if head.ref == "" {
		return &gitHead{Commit: head.value}
	}
	h := &gitHead{Branch: strings.TrimPrefix(head.ref, "refs/heads/")}
	for _, d := range []string{dir, common} {
		if h.Commit = firstWord(filepath.Join(d, filepath.FromSlash(head.ref)), "").value; h.Commit != "" {
			return h
		}
	}
	h.Commit = packed(filepath.Join(common, "packed-refs"), head.ref)
	return h
}

// gitDirs are the folder of the work tree's own files and of those that all work
// trees share.
func gitDirs(folder string) (dir, common string) {
	for at := filepath.Clean(folder); ; at = filepath.Dir(at) {
		path := filepath.Join(at, ".git")
		info, err := os.Stat(path)
		switch {
		case err == nil && info.IsDir():
			return path, path
		case err == nil:
			dir = firstWord(path, "gitdir:").ref
			if !filepath.IsAbs(dir) {
				dir = filepath.Join(at, dir)
			}
			common = firstWord(filepath.Join(dir, "commondir"), "").value
			if !filepath.IsAbs(common) {
				common = filepath.Join(dir, common)
			}
			return dir, common
		}
		if at == filepath.Dir(at) || folder == "" {
			return "", ""
		}
	}
}

// pointer is what a small file of git says: a value, or after a word a name.
type pointer struct{ value, ref string }

func firstWord(path, word string) pointer {
	text, err := os.ReadFile(path)
	if err != nil || len(text) > 4096 {
		return pointer{}
	}
	line := strings.TrimSpace(string(text))
	if ref, ok := strings.CutPrefix(line, word); ok && word != "" {
		return pointer{ref: strings.TrimSpace(ref)}
	}
	return pointer{value: line}
}

// packed finds a branch among those that git has put into one file.
func packed(path, ref string) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(text)) {
		if commit, name, ok := strings.Cut(strings.TrimSpace(line), " "); ok && name == ref {
			return commit
		}
	}
	return ""
}
