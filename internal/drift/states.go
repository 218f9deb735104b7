package drift

import (
	"fmt"
	"strings"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/drift/observer"
	"github.com/ckptsidecar/ckptsidecar/internal/drift/phrase"
	"github.com/ckptsidecar/ckptsidecar/internal/jsontext"
)

// maxNamed is how many names a message has at most; the evidence has the first one.
const maxNamed = 8

// states describes the newest checkpoints, newest last.
type states struct {
	count  int64
	depth  int // how many checkpoints are kept
	newest []observer.StatePrint
	types  map[string]string // of every top-level value, when it last was not null
	former map[string]string // the types of values that have changed and were not mended
}

const maxTypes = 4096

// add adds a checkpoint.
func (s *states) add(p observer.StatePrint) {
	s.count++
	p.Broken = nil
	if len(s.newest) >= s.depth {
		s.newest = append(s.newest[:0], s.newest[len(s.newest)-s.depth+1:]...)
	}
	s.newest = append(s.newest, p)
	for key, kind := range p.Keys {
		if kind != "null" && (len(s.types) < maxTypes || s.types[key] != "") {
			if s.types == nil {
				s.types = map[string]string{}
			}
			s.types[key] = kind
		}
	}
}

// back returns the newest n checkpoints, or nil if there are fewer.
func (s *states) back(n int) []observer.StatePrint {
	if n < 1 || len(s.newest) < n {
		return nil
	}
	return s.newest[len(s.newest)-n:]
}

// maxDepth is the most checkpoints that are kept, whatever the policy asks for: the largest
// window that it can set.
const maxDepth = 1000

// depth returns how many checkpoints the rules look back.
func (s *settings) depth() int {
	size, lost, counter := s.rules[RuleCheckpointSize], s.rules[RuleLostKeys], s.rules[RuleCounterReversed]
	return min(max(size.warn.window, int(lost.warn.value), int(counter.warn.value), leastSizes), maxDepth)
}

// stateFound returns the part that all findings of states have.
func (r *run) stateFound(rule string, p *observer.StatePrint, pointer string) observer.Found {
	f := observer.Found{Rule: rule, Severity: r.set.rules[rule].one, Evidence: ckpt.Evidence{Pointer: pointer}}
	if before := r.states.back(1); before != nil {
		f.SinceSeq = before[0].Seq
		f.Evidence.Checkpoints = append(f.Evidence.Checkpoints, before[0].ID)
	}
	f.Evidence.Checkpoints = append(f.Evidence.Checkpoints, p.ID)
	return f
}

// pointerTo returns the JSON pointer to a top-level key.
func pointerTo(key string) string { return "/" + jsontext.EscapePointer(key) }

// keyOf returns the top-level key that a JSON pointer leads to.
func keyOf(pointer string) string {
	return jsontext.UnescapePointer(strings.TrimPrefix(pointer, "/"))
}

// named lists names, or only the first of them if there are many.
func named(names []string) string {
	quoted := make([]string, 0, maxNamed)
	for _, name := range names[:min(len(names), maxNamed)] {
		quoted = append(quoted, fmt.Sprintf("%q", phrase.Cut(name)))
	}
	list := strings.Join(quoted, ", ")
	if more := len(names) - maxNamed; more > 0 {
		list += fmt.Sprintf(" and %d more", more)
	}
	return list
}
