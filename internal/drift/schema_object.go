package drift

import (
	"math"
	"strings"
	"unicode/utf8"

	"github.com/google/jsonschema-go/jsonschema"
)

func (v *validation) object(s *jsonschema.Schema, object map[string]any, at string, own *seen) bool {
	ok := v.members(s, object, at, own)
	if s.MinProperties != nil && len(object) < *s.MinProperties {
		ok = v.no(at, "has %s, fewer than %d", count(len(object), "member"), *s.MinProperties)
	}
	if s.MaxProperties != nil && len(object) > *s.MaxProperties {
		ok = v.no(at, "has %s, more than %d", count(len(object), "member"), *s.MaxProperties)
	}
	ok = v.required(s.Required, object, at) && ok
	ok = v.dependent(s, object, at, own) && ok
	if s.UnevaluatedProperties != nil && !own.allNames {
		for key, value := range object {
			if !own.names[key] {
				ok = v.valid(s.UnevaluatedProperties, value, at+pointerTo(key), nil) && ok
			}
		}
		own.allNames = true
	}
	return ok
}

// members tries the parts for members: by name, by pattern, and the rest.
func (v *validation) members(s *jsonschema.Schema, object map[string]any, at string, own *seen) bool {
	ok := true
	if s.Properties == nil && s.PatternProperties == nil && s.AdditionalProperties == nil && s.PropertyNames == nil {
		return true
	}
	for _, key := range sortedKeys(object, len(object)) {
		v.payText(len(key))
		value, known := object[key], false
		if part := s.Properties[key]; part != nil {
			ok, known = v.valid(part, value, at+pointerTo(key), nil) && ok, true
		}
		for _, name := range v.names[s] {
			if name.match(&v.meter, key) {
				ok, known = v.valid(name.schema, value, at+pointerTo(key), nil) && ok, true
			}
		}
		if !known && s.AdditionalProperties != nil {
			ok, known = v.additional(s.AdditionalProperties, value, at+pointerTo(key)) && ok, true
		}
		if known {
			own.name(key)
		}
		if s.PropertyNames != nil && !v.fits(s.PropertyNames, key, nil) {
			ok = v.no(at+pointerTo(key), "has a name that is not allowed")
		}
	}
	return ok
}

// additional says of a member that is forbidden that it is not known.
func (v *validation) additional(s *jsonschema.Schema, value any, at string) bool {
	if v.never[s] {
		return v.no(at, "is not known to the schema")
	}
	return v.valid(s, value, at, nil)
}

func (v *validation) required(names []string, object map[string]any, at string) bool {
	ok := true
	for _, name := range names {
		v.pay(1)
		if _, there := object[name]; !there {
			ok = v.no(at+pointerTo(name), "is missing")
		}
	}
	return ok
}

// dependent tries what is asked for because of other members.
func (v *validation) dependent(s *jsonschema.Schema, object map[string]any, at string, own *seen) bool {
	names, parts := s.DependentRequired, s.DependentSchemas
	if v.draft7 {
		names, parts = s.DependencyStrings, s.DependencySchemas
	}
	ok := true
	for key, needed := range names {
		if _, there := object[key]; there {
			ok = v.required(needed, object, at) && ok
		}
	}
	for key, part := range parts {
		if _, there := object[key]; there {
			ok = v.valid(part, object, at, own) && ok
		}
	}
	return ok
}

func (v *validation) text(s *jsonschema.Schema, value, at string) bool {
	ok := true
	if s.MinLength != nil || s.MaxLength != nil {
		v.payText(len(value))
		n := utf8.RuneCountInString(value)
		if s.MinLength != nil && n < *s.MinLength {
			ok = v.no(at, "has %s, fewer than %d", count(n, "character"), *s.MinLength)
		}
		if s.MaxLength != nil && n > *s.MaxLength {
			ok = v.no(at, "has %s, more than %d", count(n, "character"), *s.MaxLength)
		}
	}
	if p := v.patterns[s]; p != nil && !p.match(&v.meter, value) {
		ok = v.no(at, "does not match the pattern %q", cut(s.Pattern))
	}
	return ok
}

func (v *validation) number(s *jsonschema.Schema, x float64, at string) bool {
	ok := true
	if s.MultipleOf != nil {
		if _, rest := math.Modf(x / *s.MultipleOf); rest != 0 {
			ok = v.no(at, "is no multiple of %s", figure(*s.MultipleOf))
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
			ok = v.no(at, bound.words, figure(*bound.limit))
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

func alternatives(types []string) string {
	words := make([]string, len(types))
	for i, kind := range types {
		words[i] = article(kind)
	}
	return strings.Join(words, " or ")
}
