package hook

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

// Snapshot is the state of a session as a checkpoint holds it. Its members are always
// present, so that none looks lost. Sizes are texts, because a transcript becomes
// smaller when it is compacted, and that is no sign of drift.
type Snapshot struct {
	Product     Product    `json:"product"`
	Session     string     `json:"session"`
	Event       string     `json:"event"` // the event at which it was saved
	Folder      string     `json:"folder"`
	Transcript  transcript `json:"transcript"`
	Git         *gitHead   `json:"git"`
	Goal        string     `json:"goal"`         // the session's first prompt
	LastPrompt  string     `json:"last_prompt"`  // the session's last prompt
	EventsRead  string     `json:"events_read"`  // up to which event of the run the prompts were read
	LastMessage string     `json:"last_message"` // the model's last message, if the product reports it
	Plan        ckpt.JSON  `json:"plan"`         // as the model's own tool has it
	ToolCalls   int64      `json:"tool_calls"`
}

type transcript struct {
	Path  string `json:"path"`
	Bytes string `json:"bytes"`
}

type gitHead struct {
	Commit string `json:"commit"`
	Branch string `json:"branch"` // "" if no branch is checked out
}

// The most bytes of each that a snapshot holds.
const (
	maxPrompt  = 4 << 10
	maxMessage = 8 << 10
	maxPlan    = 32 << 10
)

// snapshot returns the state at this moment, with what an earlier snapshot knew.
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

// same reports whether a snapshot says nothing new: only the event and the transcript differ, or what was read of the events.
func (s *Snapshot) same(earlier *Snapshot) bool {
	if earlier == nil || earlier.Session == "" {
		return false
	}
	one, other := *s, *earlier
	for _, each := range []*Snapshot{&one, &other} {
		each.Event, each.Transcript, each.EventsRead = "", transcript{}, ""
		if string(each.Plan) == "null" {
			each.Plan = nil
		}
	}
	return reflect.DeepEqual(one, other)
}

func (s *Snapshot) text() (ckpt.JSON, error) {
	text, err := json.Marshal(s)
	return text, err
}

// readSnapshot returns the snapshot that a checkpoint holds, nil if the checkpoint
// holds another kind of state.
func readSnapshot(c *ckpt.Checkpoint) *Snapshot {
	s := new(Snapshot)
	if c == nil || json.Unmarshal(c.State, s) != nil || s.Session == "" {
		return nil
	}
	return s
}

// headOf reads which commit is checked out. It does not ask git, which would take
// longer than everything else. It returns nil if there is no repository.
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

// gitDirs returns the folder of the work tree's own files, and the folder of the files
// that all work trees share.
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

// pointer is the content of a small file of git: a value, or a name after a word.
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

// packed finds a branch in the file in which git packs references.
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
