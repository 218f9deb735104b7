package schema

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/ckptsidecar/ckptsidecar/internal/drift/meter"
	"github.com/ckptsidecar/ckptsidecar/internal/drift/phrase"
	"github.com/ckptsidecar/ckptsidecar/internal/jsontext"
)

// What trying a schema may cost, and how many places of a state are named.
const (
	MaxWork   = 5_000_000
	maxDown   = 10_000
	maxPlaces = 8
)

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

// Try answers what of a value breaks the schema, the first places of it. left is
// the work that was not needed. stopped says that more than work was needed; err
// is why ctx ended it.
func (s *Schema) Try(ctx context.Context, value any, work int) (found []Violation, left int, stopped bool, err error) {
	v := &validation{Schema: s, Meter: meter.New(ctx, work, 0)}
	stopped, err = meter.Run(func() { v.valid(s.root, value, nil) })
	return v.found, v.Left(), stopped, err
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

// fits is valid without noting anything.
func (v *validation) fits(s *jsonschema.Schema, value any, seen *seen) bool {
	v.quiet++
	ok := v.valid(s, value, seen)
	v.quiet--
	return ok
}

// below tries a part of the schema on a value that is inside another.
func (v *validation) below(s *jsonschema.Schema, value any, at segment) bool {
	if v.quiet > 0 {
		return v.valid(s, value, nil)
	}
	v.path = append(v.path, at)
	ok := v.valid(s, value, nil)
	v.path = v.path[:len(v.path)-1]
	return ok
}

// valid tries a part of the schema on a value. Where it is valid, into gets
// what was evaluated.
func (v *validation) valid(s *jsonschema.Schema, value any, into *seen) bool {
	v.Pay(6)
	v.Down(maxDown)
	defer v.Up()
	var own *seen
	if v.unevaluated {
		own = &seen{}
	}
	ok := true
	if target := v.refs[s]; target != nil {
		ok = v.valid(target, value, own)
		if v.draft7 {
			return ok // its neighbors do not count
		}
	}
	ok = v.simple(s, value) && ok
	ok = v.logic(s, value, own) && ok
	switch value := value.(type) {
	case string:
		ok = v.text(s, value) && ok
	case float64:
		ok = v.number(s, value) && ok
	case []any:
		ok = v.array(s, value, own) && ok
	case map[string]any:
		ok = v.object(s, value, own) && ok
	}
	if ok {
		v.merge(into, own)
	}
	return ok
}

// simple tries type, enum and const.
func (v *validation) simple(s *jsonschema.Schema, value any) bool {
	ok := true
	if types := s.Types; s.Type != "" || types != nil {
		if s.Type != "" {
			types = []string{s.Type}
		}
		if kind := kindOf(value); !slices.Contains(types, kind) && !(kind == "integer" && slices.Contains(types, "number")) {
			ok = v.no("is %s and must be %s", phrase.Article(kind), alternatives(types))
		}
	}
	if s.Enum != nil && !slices.ContainsFunc(s.Enum, func(e any) bool { return v.Equal(e, value) }) {
		ok = v.no("is none of the %s that are allowed", phrase.Count(len(s.Enum), "value"))
	}
	if s.Const != nil && !v.Equal(*s.Const, value) {
		ok = v.no("is not the one value that is allowed")
	}
	return ok
}

// fitting counts the parts that a value fits. All are tried: each may evaluate
// something.
func (v *validation) fitting(parts []*jsonschema.Schema, value any, own *seen) (n int) {
	for _, part := range parts {
		if v.fits(part, value, own) {
			n++
		}
	}
	return n
}

// logic tries what holds parts together.
func (v *validation) logic(s *jsonschema.Schema, value any, own *seen) bool {
	ok := true
	for _, part := range s.AllOf {
		ok = v.valid(part, value, own) && ok
	}
	if s.AnyOf != nil {
		n := v.fitting(s.AnyOf, value, own)
		if n == 0 {
			ok = v.no("matches none of the %s of anyOf", phrase.Count(len(s.AnyOf), "form"))
		}
	}
	if s.OneOf != nil {
		n := v.fitting(s.OneOf, value, own)
		if n != 1 {
			ok = v.no("matches %d of the %s of oneOf, not exactly one", n, phrase.Count(len(s.OneOf), "form"))
		}
	}
	if s.Not != nil && v.fits(s.Not, value, nil) {
		ok = v.no("matches what not forbids")
	}
	if s.If != nil {
		next := s.Else
		if v.fits(s.If, value, own) {
			next = s.Then
		}
		if next != nil {
			ok = v.valid(next, value, own) && ok
		}
	}
	return ok
}

func (v *validation) array(s *jsonschema.Schema, list []any, own *seen) bool {
	ok := v.items(s, list, own)
	if s.MinItems != nil && len(list) < *s.MinItems {
		ok = v.no("has %s, fewer than %d", phrase.Count(len(list), "item"), *s.MinItems)
	}
	if s.MaxItems != nil && len(list) > *s.MaxItems {
		ok = v.no("has %s, more than %d", phrase.Count(len(list), "item"), *s.MaxItems)
	}
	if s.UniqueItems {
		if i, j := v.twins(list); j > 0 {
			ok = v.no("has the same item at %d and %d", i, j)
		}
	}
	if s.Contains != nil {
		ok = v.contains(s, list, own) && ok
	}
	if s.UnevaluatedItems != nil && !own.allItems {
		for i, item := range list {
			v.Pay(1)
			if !own.items[i] {
				ok = v.below(s.UnevaluatedItems, item, segment{index: i}) && ok
			}
		}
		own.allItems = true
	}
	return ok
}

// items tries the parts for items: those at the beginning, then the rest.
func (v *validation) items(s *jsonschema.Schema, list []any, own *seen) bool {
	first, rest := s.PrefixItems, s.Items
	if v.draft7 {
		first, rest = s.ItemsArray, s.Items
		if first != nil {
			rest = s.AdditionalItems
		}
	}
	ok := true
	for i, item := range list {
		part := rest
		if i < len(first) {
			part = first[i]
		} else if rest == nil {
			break
		}
		ok = v.below(part, item, segment{index: i}) && ok
		v.item(own, i)
	}
	if rest != nil && own != nil {
		own.allItems = true
	}
	return ok
}

func (v *validation) contains(s *jsonschema.Schema, list []any, own *seen) bool {
	n, least := 0, 1
	if s.MinContains != nil {
		least = *s.MinContains
	}
	for i, item := range list {
		if v.fits(s.Contains, item, nil) {
			n++
			v.item(own, i)
		}
	}
	switch {
	case n < least:
		return v.no("has %s of the form that contains asks for, fewer than %d", phrase.Count(n, "item"), least)
	case s.MaxContains != nil && n > *s.MaxContains:
		return v.no("has %s of the form that contains asks for, more than %d", phrase.Count(n, "item"), *s.MaxContains)
	}
	return true
}

// twins are two equal items, 0 and 0 where there are none.
func (v *validation) twins(list []any) (int, int) {
	v.Pay(2 * len(list))
	byHash := make(map[uint64][]int, len(list))
	for j, item := range list {
		v.Pay(2)
		h := v.Hash(item)
		for _, i := range byHash[h] {
			if v.Equal(list[i], item) {
				return i, j
			}
		}
		byHash[h] = append(byHash[h], j)
	}
	return 0, 0
}
