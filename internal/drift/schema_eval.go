package drift

import (
	"slices"
	"strconv"

	"github.com/google/jsonschema-go/jsonschema"
)

// What trying a schema may cost, and how many places of a state are named.
const (
	MaxSchemaWork = 5_000_000
	maxDown       = 10_000
	maxPlaces     = 8
)

// violation is a place in a state, and how it breaks the schema.
type violation struct{ pointer, what string }

// validation is one try of a schema.
type validation struct {
	*schema
	meter
	found []violation
	quiet int // above 0 what is found does not count: it is an alternative
}

// try answers what of a value breaks the schema, the first places of it.
// stopped says that it cost too much.
func (s *schema) try(value any) (found []violation, stopped bool) {
	v := &validation{schema: s, meter: meter{work: MaxSchemaWork}}
	stopped = metered(func() { v.valid(s.root, value, "", nil) })
	return v.found, stopped
}

// seen is what of a value the parts of a schema have evaluated.
type seen struct {
	names    map[string]bool
	allNames bool
	items    map[int]bool
	allItems bool
}

func (s *seen) name(key string) {
	if s != nil {
		if s.names == nil {
			s.names = map[string]bool{}
		}
		s.names[key] = true
	}
}

func (s *seen) item(i int) {
	if s != nil {
		if s.items == nil {
			s.items = map[int]bool{}
		}
		s.items[i] = true
	}
}

func (s *seen) merge(other *seen) {
	if s == nil || other == nil {
		return
	}
	for key := range other.names {
		s.name(key)
	}
	for i := range other.items {
		s.item(i)
	}
	s.allNames, s.allItems = s.allNames || other.allNames, s.allItems || other.allItems
}

// no notes a place that breaks the schema.
func (v *validation) no(at, format string, args ...any) bool {
	if v.quiet == 0 && len(v.found) < maxPlaces {
		v.found = append(v.found, violation{at, sentence(format, args...)})
	}
	return false
}

// fits is valid without noting anything.
func (v *validation) fits(s *jsonschema.Schema, value any, seen *seen) bool {
	v.quiet++
	ok := v.valid(s, value, "", seen)
	v.quiet--
	return ok
}

// valid tries a part of the schema on a value. Where it is valid, seen gets
// what was evaluated.
func (v *validation) valid(s *jsonschema.Schema, value any, at string, into *seen) bool {
	v.pay(4)
	if v.depth++; v.depth > maxDown {
		panic(tooMuch{})
	}
	defer func() { v.depth-- }()
	var own *seen
	if v.unevaluated {
		own = &seen{}
	}
	ok := true
	if target := v.refs[s]; target != nil {
		ok = v.valid(target, value, at, own)
		if v.draft7 {
			return ok // its neighbours do not count
		}
	}
	ok = v.simple(s, value, at) && ok
	ok = v.logic(s, value, at, own) && ok
	switch value := value.(type) {
	case string:
		ok = v.text(s, value, at) && ok
	case float64:
		ok = v.number(s, value, at) && ok
	case []any:
		ok = v.array(s, value, at, own) && ok
	case map[string]any:
		ok = v.object(s, value, at, own) && ok
	}
	if ok {
		into.merge(own)
	}
	return ok
}

// simple tries type, enum and const.
func (v *validation) simple(s *jsonschema.Schema, value any, at string) bool {
	ok := true
	if types := s.Types; s.Type != "" || types != nil {
		if s.Type != "" {
			types = []string{s.Type}
		}
		if kind := kindOf(value); !slices.Contains(types, kind) && !(kind == "integer" && slices.Contains(types, "number")) {
			ok = v.no(at, "is %s and must be %s", article(kind), alternatives(types))
		}
	}
	if s.Enum != nil && !slices.ContainsFunc(s.Enum, func(e any) bool { return v.equal(e, value) }) {
		ok = v.no(at, "is none of the %s that are allowed", count(len(s.Enum), "value"))
	}
	if s.Const != nil && !v.equal(*s.Const, value) {
		ok = v.no(at, "is not the one value that is allowed")
	}
	return ok
}

// logic tries what holds parts together.
func (v *validation) logic(s *jsonschema.Schema, value any, at string, own *seen) bool {
	ok := true
	for _, part := range s.AllOf {
		ok = v.valid(part, value, at, own) && ok
	}
	if s.AnyOf != nil {
		n := 0
		for _, part := range s.AnyOf {
			n += b2i(v.fits(part, value, own))
		}
		if n == 0 {
			ok = v.no(at, "fits none of the %s of anyOf", count(len(s.AnyOf), "form"))
		}
	}
	if s.OneOf != nil {
		n := 0
		for _, part := range s.OneOf {
			n += b2i(v.fits(part, value, own))
		}
		if n != 1 {
			ok = v.no(at, "fits %d of the %s of oneOf, not one", n, count(len(s.OneOf), "form"))
		}
	}
	if s.Not != nil && v.fits(s.Not, value, nil) {
		ok = v.no(at, "is what is not allowed")
	}
	if s.If != nil {
		next := s.Else
		if v.fits(s.If, value, own) {
			next = s.Then
		}
		if next != nil {
			ok = v.valid(next, value, at, own) && ok
		}
	}
	return ok
}

func (v *validation) array(s *jsonschema.Schema, list []any, at string, own *seen) bool {
	ok := v.items(s, list, at, own)
	if s.MinItems != nil && len(list) < *s.MinItems {
		ok = v.no(at, "has %s, fewer than %d", count(len(list), "item"), *s.MinItems)
	}
	if s.MaxItems != nil && len(list) > *s.MaxItems {
		ok = v.no(at, "has %s, more than %d", count(len(list), "item"), *s.MaxItems)
	}
	if s.UniqueItems {
		if i, j := v.twins(list); j > 0 {
			ok = v.no(at, "has the same item at %d and %d", i, j)
		}
	}
	if s.Contains != nil {
		ok = v.contains(s, list, at, own) && ok
	}
	if s.UnevaluatedItems != nil && !own.allItems {
		for i, item := range list {
			if !own.items[i] {
				ok = v.valid(s.UnevaluatedItems, item, at+"/"+strconv.Itoa(i), nil) && ok
			}
		}
		own.allItems = true
	}
	return ok
}

// items tries the parts for items: those at the beginning, then the rest.
func (v *validation) items(s *jsonschema.Schema, list []any, at string, own *seen) bool {
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
		}
		if part != nil {
			ok = v.valid(part, item, at+"/"+strconv.Itoa(i), nil) && ok
			own.item(i)
		}
	}
	if rest != nil && own != nil {
		own.allItems = true
	}
	return ok
}

func (v *validation) contains(s *jsonschema.Schema, list []any, at string, own *seen) bool {
	n, least := 0, 1
	if s.MinContains != nil {
		least = *s.MinContains
	}
	for i, item := range list {
		if v.fits(s.Contains, item, nil) {
			n++
			own.item(i)
		}
	}
	switch {
	case n < least:
		return v.no(at, "has %s of the form that contains asks for, fewer than %d", count(n, "item"), least)
	case s.MaxContains != nil && n > *s.MaxContains:
		return v.no(at, "has %s of the form that contains asks for, more than %d", count(n, "item"), *s.MaxContains)
	}
	return true
}

// twins are two equal items, 0 and 0 where there are none.
func (v *validation) twins(list []any) (int, int) {
	byHash := make(map[uint64][]int, len(list))
	for j, item := range list {
		h := v.hash(item)
		for _, i := range byHash[h] {
			if v.equal(list[i], item) {
				return i, j
			}
		}
		byHash[h] = append(byHash[h], j)
	}
	return 0, 0
}
