package schema

import (
	"math"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/ckptsidecar/ckptsidecar/internal/drift/phrase"
	"github.com/google/jsonschema-go/jsonschema"
)

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

func (v *validation) required(names []string, object map[string]any) bool {
	ok := true
	for _, name := range names {
		if _, there := v.Member(object, name); !there {
			ok = v.noMember(name, "is missing")
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
	if s.MultipleOf != nil && !v.isMultiple(x, *s.MultipleOf) {
		ok = v.no("is not a multiple of %s", limit(*s.MultipleOf))
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

// kindOf returns the type of a value as JSON Schema names it.
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

// alternatives are types for a message. They are formatted only if the message is
// written.
type alternatives []string

func (types alternatives) String() string {
	words := make([]string, len(types))
	for i, kind := range types {
		words[i] = phrase.Article(kind)
	}
	return strings.Join(words, " or ")
}

// limit is a number for a message.
type limit float64

func (l limit) String() string { return phrase.Figure(float64(l)) }

// twins returns the indexes of two equal items, 0 and 0 if there are none.
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
