package schema

import (
	"context"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/ckptsidecar/ckptsidecar/internal/drift/meter"
	"github.com/ckptsidecar/ckptsidecar/internal/drift/phrase"
)

// What trying a schema may cost: units of work (see meter) and levels of nesting.
const (
	MaxWork = 5_000_000
	maxDown = 10_000
)

// Try returns the first places of a value that violate the schema. left is the work that
// was not needed. stopped is true if more than work was needed. err is the error of ctx,
// if ctx ended the attempt.
func (s *Schema) Try(ctx context.Context, value any, work int) (found []Violation, left int, stopped bool, err error) {
	v := &validation{Schema: s, Meter: meter.New(ctx, work, 0)}
	stopped, err = meter.Run(func() { v.valid(s.root, value, nil) })
	return v.found, v.Left(), stopped, err
}

// fits is valid without recording violations.
func (v *validation) fits(s *jsonschema.Schema, value any, seen *seen) bool {
	v.quiet++
	ok := v.valid(s, value, seen)
	v.quiet--
	return ok
}

// below tries a part of the schema on a value that is inside another value.
func (v *validation) below(s *jsonschema.Schema, value any, at segment) bool {
	if v.quiet > 0 {
		return v.valid(s, value, nil)
	}
	v.path = append(v.path, at)
	ok := v.valid(s, value, nil)
	v.path = v.path[:len(v.path)-1]
	return ok
}

// valid tries a part of the schema on a value. If the value is valid, valid adds to into
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
			return ok // in draft-07, the members next to a reference are ignored
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

// fitting returns how many of the parts a value fits. It tries all of them, because each
// can evaluate something.
func (v *validation) fitting(parts []*jsonschema.Schema, value any, own *seen) (n int) {
	for _, part := range parts {
		if v.fits(part, value, own) {
			n++
		}
	}
	return n
}

// logic tries the keywords that combine parts.
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

func (v *validation) object(s *jsonschema.Schema, object map[string]any, own *seen) bool {
	ok := v.members(s, object, own)
	if s.MinProperties != nil && len(object) < *s.MinProperties {
		ok = v.no("has %s, fewer than %d", phrase.Count(len(object), "member"), *s.MinProperties)
	}
	if s.MaxProperties != nil && len(object) > *s.MaxProperties {
		ok = v.no("has %s, more than %d", phrase.Count(len(object), "member"), *s.MaxProperties)
	}
	ok = v.required(s.Required, object) && ok
	ok = v.dependent(s, object, own) && ok
	if s.UnevaluatedProperties != nil && !own.allNames {
		for _, key := range v.names(object) {
			v.PayText(2 * len(key))
			if !own.names[key] {
				ok = v.below(s.UnevaluatedProperties, object[key], segment{key, -1}) && ok
			}
		}
		own.allNames = true
	}
	return ok
}

// members tries the parts for members: by name, by pattern, and the rest.
func (v *validation) members(s *jsonschema.Schema, object map[string]any, own *seen) bool {
	ok := true
	if s.Properties == nil && s.PatternProperties == nil && s.AdditionalProperties == nil && s.PropertyNames == nil {
		return true
	}
	for _, key := range v.names(object) {
		v.Pay(2 + len(key)/32)
		value, known, at := object[key], false, segment{key, -1}
		if part := s.Properties[key]; part != nil {
			ok, known = v.below(part, value, at) && ok, true
		}
		for _, name := range v.patternsOf[s] {
			if name.Match(&v.Meter, key) {
				ok, known = v.below(name.schema, value, at) && ok, true
			}
		}
		if !known && s.AdditionalProperties != nil {
			ok, known = v.additional(s.AdditionalProperties, value, at) && ok, true
		}
		if known {
			v.name(own, key)
		}
		if s.PropertyNames != nil && !v.fits(s.PropertyNames, key, nil) {
			ok = v.noMember(key, "has a name that is not allowed")
		}
	}
	return ok
}

// additional reports a forbidden member as unknown.
func (v *validation) additional(s *jsonschema.Schema, value any, at segment) bool {
	if v.never[s] {
		return v.noMember(at.name, "is not known to the schema")
	}
	return v.below(s, value, at)
}

// dependent tries the parts that are required because of other members.
func (v *validation) dependent(s *jsonschema.Schema, object map[string]any, own *seen) bool {
	names, parts := s.DependentRequired, s.DependentSchemas
	if v.draft7 {
		names, parts = s.DependencyStrings, s.DependencySchemas
	}
	ok := true
	for key, needed := range names {
		if _, there := v.Member(object, key); there {
			ok = v.required(needed, object) && ok
		}
	}
	for key, part := range parts {
		if _, there := v.Member(object, key); there {
			ok = v.valid(part, object, own) && ok
		}
	}
	return ok
}
