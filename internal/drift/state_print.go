package drift

import (
	"bytes"
	"cmp"
	"math"
	"slices"
	"strconv"
	"strings"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/drift/observer"
	"github.com/ckptsidecar/ckptsidecar/internal/jsontext"
)

// The limits of what is kept about a state: top-level keys (an object with more keys is
// data, not a form), counters, and their depth.
const (
	maxKeys         = 1000
	maxCounters     = 256
	maxCounterDepth = 4
	maxPrinted      = 64 << 20 // bytes of a state that is read for its fingerprint
)

// printState makes the fingerprint of a state. Numbers in arrays do not count as
// counters, because elements move.
func printState(p *observer.StatePrint, state []byte, m *jsontext.Map, contentType string) {
	p.Size = int64(len(state))
	if !ckpt.IsJSON(contentType) || len(state) > maxPrinted {
		return
	}
	first := bytes.TrimLeft(state, " \t\r\n")
	if len(first) == 0 {
		return
	}
	if first[0] != '{' {
		p.Keys = map[string]string{}
		if isTalk(state, len(state)-len(first), m) {
			p.Talk = int64(len(first))
		}
		return
	}
	members, ok := membersOf(state, 0, m)
	if !ok || len(members) > maxKeys {
		return
	}
	p.Keys = make(map[string]string, len(members))
	for _, member := range members {
		p.Keys[member.name] = typeOf(state[member.begin:member.end])
	}
	p.Talk = talkIn(state, m, members, true)
	p.Counters = map[string]float64{}
	counters(p.Counters, state, m, members, "", 1)
}

// member is the position of a value of an object in a state.
type member struct {
	name       string
	begin, end int
}

// membersOf returns the members of the object at a position of a state. There can be a
// map of the state. It stops after maxKeys+1 members.
func membersOf(state []byte, at int, m *jsontext.Map) ([]member, bool) {
	members := make([]member, 0, 8)
	ok := jsontext.MembersAt(state, at, m, func(name string, begin, end int) bool {
		members = append(members, member{name, begin, end})
		return len(members) <= maxKeys
	})
	return members, ok
}

// talkIn returns the size of the longest conversation among the members of an object, and
// of the objects directly in it.
func talkIn(state []byte, m *jsontext.Map, members []member, deeper bool) (size int64) {
	for _, at := range members {
		switch state[at.begin] {
		case '[':
			if n := int64(at.end - at.begin); n > size && isTalk(state, at.begin, m) {
				size = n
			}
		case '{':
			if !deeper || int64(at.end-at.begin) <= size {
				continue
			}
			if inner, ok := membersOf(state, at.begin, m); ok {
				size = max(size, talkIn(state, m, inner, false))
			}
		}
	}
	return size
}

// isTalk reports whether the array at a position begins with a message: an object that
// has a role or a type, and a content.
func isTalk(state []byte, at int, m *jsontext.Map) bool {
	at++
	for at < len(state) && (state[at] == ' ' || state[at] == '\t' || state[at] == '\r' || state[at] == '\n') {
		at++
	}
	if at >= len(state) || state[at] != '{' {
		return false
	}
	who, what := false, false
	jsontext.MembersAt(state, at, m, func(name string, _, _ int) bool {
		switch name {
		case "role", "type", "author", "source":
			who = true
		case "content", "text", "parts", "tool_calls", "message", "output", "data", "kwargs":
			what = true
		}
		return !who || !what
	})
	return who && what
}

// counters collects the whole numbers that are not negative in an object and in the
// objects in it, in the order of their keys. It sorts the members.
func counters(into map[string]float64, state []byte, m *jsontext.Map, members []member, place string, depth int) {
	slices.SortStableFunc(members, func(a, b member) int { return strings.Compare(a.name, b.name) })
	for _, at := range members[:min(len(members), maxKeys)] {
		if len(into) >= maxCounters {
			return
		}
		switch value := state[at.begin:at.end]; typeOf(value) {
		case "number":
			if x, err := strconv.ParseFloat(string(value), 64); err == nil && x >= 0 && x == math.Trunc(x) && x < 1<<53 {
				into[place+pointerTo(at.name)] = x
			}
		case "object":
			if depth == maxCounterDepth {
				continue
			}
			if inner, ok := membersOf(state, at.begin, m); ok {
				counters(into, state, m, inner, place+pointerTo(at.name), depth+1)
			}
		}
	}
}

// typeOf returns the JSON type of a value.
func typeOf(value []byte) string { return cmp.Or(jsontext.TypeOf(value), "null") }
