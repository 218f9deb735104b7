package schema

import (
	"maps"
	"math"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/ckptsidecar/ckptsidecar/internal/drift/phrase"
	"github.com/google/jsonschema-go/jsonschema"
)

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

// names are the names of the members of an object, in order where it matters
// which of them is named first.
func (v *validation) names(object map[string]any) []string {
	if v.quiet == 0 && len(v.found) < maxPlaces {
		return v.Keys(object)
	}
	v.Pay(1 + 2*len(object))
	return slices.AppendSeq(make([]string, 0, len(object)), maps.Keys(object))
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

// additional says of a member that is forbidden that it is not known.
func (v *validation) additional(s *jsonschema.Schema, value any, at segment) bool {
	if v.never[s] {
		return v.noMember(at.name, "is not known to the schema")
	}
	return v.below(s, value, at)
}

func (v *validation) required(names []string, object map[string]any) bool {
	ok := true
	for _, name := range names {
		if _, there := v.Member(object, name); !there {
			ok = v.noMember(name, "is missing")
		}
	}
	return ok
}

// dependent tries what is asked for because of other members.
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

func (v *validation) text(s *jsonschema.Schema, value string) bool {
	ok := true
	if s.MinLength != nil || s.MaxLength != nil {
		v.PayText(len(value))
		n := utf8.RuneCountInString(value)
		if s.MinLength != nil && n < *s.MinLength {
			ok = v.no("has %s, fewer than %d", phrase.Count(n, "character"), *s.MinLength)
		}
		if s.MaxLength != nil && n > *s.MaxLength {
			ok = v.no("has %s, more than %d", phrase.Count(n, "character"), *s.MaxLength)
		}
	}
	if p := v.patterns[s]; p != nil && !p.Match(&v.Meter, value) {
		ok = v.no("does not match the pattern %q", phrase.Cut(s.Pattern))
	}
	return ok
}

func (v *validation) number(s *jsonschema.Schema, x float64) bool {
	ok := true
	if s.MultipleOf != nil {
		if _, rest := math.Modf(x / *s.MultipleOf); rest != 0 {
			ok = v.no("is not a multiple of %s", limit(*s.MultipleOf))
		}
	}
	for _, bound := range []struct {
		limit  *float64
		breaks func(limit float64) bool
		words  string
	}{
		{s.Minimum, func(l float64) bool { return x < l }, "is less than %s"},
		{s.Maximum, func(l float64) bool { return x > l }, "is more than %s"},
		{s.ExclusiveMinimum, func(l float64) bool { return x <= l }, "is not more than %s"},
		{s.ExclusiveMaximum, func(l float64) bool { return x >= l }, "is not less than %s"},
	} {
		if bound.limit != nil && bound.breaks(*bound.limit) {
			ok = v.no(bound.words, limit(*bound.limit))
		}
	}
	return ok
}

// kindOf is the type of a value in the words of JSON Schema.
func kindOf(value any) string {
	switch value := value.(type) {
	case nil:
		return "null"
	case bool:
		return "boolean"
	case string:
		return "string"
	case float64:
		if value == math.Trunc(value) {
			return "integer"
		}
		return "number"
	case []any:
		return "array"
	}
	return "object"
}

// alternatives are types as a message names them. It is written only where the
// message is.
type alternatives []string

func (types alternatives) String() string {
	words := make([]string, len(types))
	for i, kind := range types {
		words[i] = phrase.Article(kind)
	}
	return strings.Join(words, " or ")
}

// limit is a number as a message names it.
type limit float64

func (l limit) String() string { return phrase.Figure(float64(l)) }
