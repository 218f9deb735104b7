package schema

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/ckptsidecar/ckptsidecar/internal/drift/meter"
	"github.com/ckptsidecar/ckptsidecar/internal/drift/phrase"
	"github.com/ckptsidecar/ckptsidecar/internal/jsontext"
)

// maxPlaces is how many places of a state are named at most.
const maxPlaces = 8

// Violation is a place in a state, and how it violates the schema.
type Violation struct{ Pointer, What string }

// validation is one attempt of a schema.
type validation struct {
	*Schema
	meter.Meter
	path  []segment // from the state to the current value; not kept while quiet
	found []Violation
	quiet int // above 0, violations are not recorded: this is an alternative
}

// segment is one step of the path in a state: a member's name, or the index of an item.
type segment struct {
	name  string
	index int // -1 for a name
}

// maxPointer is how many bytes of a pointer are kept: the names in a state can have any
// length.
const maxPointer = 1000

// pointer returns the JSON pointer to a place. It cuts a very long one.
func pointer(path []segment) string {
	var b strings.Builder
	for _, s := range path {
		b.WriteByte('/')
		if s.index >= 0 {
			b.WriteString(strconv.Itoa(s.index))
		} else {
			b.WriteString(jsontext.EscapePointer(s.name[:min(len(s.name), maxPointer+1)]))
		}
		if b.Len() > maxPointer {
			return phrase.CutTo(b.String(), maxPointer)
		}
	}
	return b.String()
}

// seen is what the parts of a schema have evaluated in a value.
type seen struct {
	names    map[string]bool
	allNames bool
	items    map[int]bool
	allItems bool
}

// name records that a member was evaluated.
func (v *validation) name(s *seen, key string) {
	if s == nil {
		return
	}
	v.Pay(2 + len(key)/64)
	if s.names == nil {
		s.names = map[string]bool{}
	}
	s.names[key] = true
}

// item records that an item was evaluated.
func (v *validation) item(s *seen, i int) {
	if s == nil {
		return
	}
	v.Pay(2)
	if s.items == nil {
		s.items = map[int]bool{}
	}
	s.items[i] = true
}

// merge adds what one part has evaluated to what others have evaluated. The caller must
// not use from afterwards, so that merge can add the smaller set to the larger one.
func (v *validation) merge(into, from *seen) {
	if into == nil || from == nil {
		return
	}
	if len(into.names) < len(from.names) {
		into.names, from.names = from.names, into.names
	}
	if len(into.items) < len(from.items) {
		into.items, from.items = from.items, into.items
	}
	v.Pay(len(from.names) + len(from.items))
	for key := range from.names {
		v.name(into, key)
	}
	for i := range from.items {
		v.item(into, i)
	}
	into.allNames, into.allItems = into.allNames || from.allNames, into.allItems || from.allItems
}

// no records that the value violates the schema.
func (v *validation) no(format string, args ...any) bool {
	if v.quiet == 0 && len(v.found) < maxPlaces {
		v.found = append(v.found, Violation{pointer(v.path), fmt.Sprintf(format, args...)})
	}
	return false
}

// noMember records that a member of the value violates the schema.
func (v *validation) noMember(name, format string, args ...any) bool {
	if v.quiet > 0 || len(v.found) >= maxPlaces {
		return false
	}
	v.path = append(v.path, segment{name, -1})
	v.no(format, args...)
	v.path = v.path[:len(v.path)-1]
	return false
}

// names returns the names of the members of an object. They are sorted if it matters
// which one is named first.
func (v *validation) names(object map[string]any) []string {
	if v.quiet == 0 && len(v.found) < maxPlaces {
		return v.Keys(object)
	}
	v.Pay(1 + 2*len(object))
	return slices.AppendSeq(make([]string, 0, len(object)), maps.Keys(object))
}
