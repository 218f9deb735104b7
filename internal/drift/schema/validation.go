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

// maxPlaces is how many places of a state are named.
const maxPlaces = 8

// Violation is a place in a state, and how it breaks the schema.
type Violation struct{ Pointer, What string }

// validation is one try of a schema.
type validation struct {
	*Schema
	meter.Meter
	path  []segment // from the state to the value that is being tried; not kept while quiet
	found []Violation
	quiet int // above 0 what is found does not count: it is an alternative
}

// segment is one step down in a state: a member's name, or the index of an item.
type segment struct {
	name  string
	index int // -1 for a name
}

// maxPointer is how many bytes of a pointer are kept: the names in a state may
// be of any length.
const maxPointer = 1000

// pointer is the JSON pointer to a place, cut where it is very long.
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

// seen is what of a value the parts of a schema have evaluated.
type seen struct {
	names    map[string]bool
	allNames bool
	items    map[int]bool
	allItems bool
}

// name notes that a member was evaluated.
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

// item notes that an item was evaluated.
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

// merge adds what one part has evaluated to what others have. from is not used
// any more, so that the larger of the two can take in the smaller.
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

// no notes that the value breaks the schema.
func (v *validation) no(format string, args ...any) bool {
	if v.quiet == 0 && len(v.found) < maxPlaces {
		v.found = append(v.found, Violation{pointer(v.path), fmt.Sprintf(format, args...)})
	}
	return false
}

// noMember notes that a member of the value breaks the schema.
func (v *validation) noMember(name, format string, args ...any) bool {
	if v.quiet > 0 || len(v.found) >= maxPlaces {
		return false
	}
	v.path = append(v.path, segment{name, -1})
	v.no(format, args...)
	v.path = v.path[:len(v.path)-1]
	return false
}

// names are the names of the members of an object, in order where it matters
// which of them is named first.
func (v *validation) names(object map[string]any) []string {
	if v.quiet == 0 && len(v.found) < maxPlaces {
		return v.Keys(object)
	}
	v.Pay(1 + 2*len(object))
	return slices.AppendSeq(make([]string, 0, len(object)), maps.Keys(object))
}
