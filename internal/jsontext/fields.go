package jsontext

import (
	"cmp"
	"reflect"
	"slices"
	"strings"
	"sync"
	"unicode"
)

// field is a field in the sense of encoding/json, with its index path.
type field struct {
	index  []int
	tagged bool // its name comes from a tag
	quoted bool // it has the option ",string"
}

// fieldCache caches the results of fieldsOf, by reflect.Type.
var fieldCache sync.Map

// fieldsOf returns the fields of a struct type by their JSON names.
func fieldsOf(t reflect.Type) map[string]field {
	if cached, ok := fieldCache.Load(t); ok {
		return cached.(map[string]field)
	}
	fields := findFields(t)
	fieldCache.Store(t, fields)
	return fields
}

// embeddedStruct is a struct type to search, and the index path to it.
type embeddedStruct struct {
	t     reflect.Type
	index []int
	twice bool // it is embedded more than once at its level: all its fields are ambiguous
}

// findFields searches a type and the structs embedded in it, level by level. As in Go, a name found
// at one level hides that name at deeper levels, and a name that is ambiguous at its level is no
// field at all. But a tagged field wins over untagged ones.
func findFields(t reflect.Type) map[string]field {
	fields := map[string]field{}
	taken := map[string]bool{} // names seen at higher levels
	seen := map[reflect.Type]bool{t: true}
	for level := []embeddedStruct{{t: t}}; len(level) > 0; {
		found := map[string][]field{}
		var deeper []embeddedStruct
		for _, e := range level {
			deeper = append(deeper, e.collect(found)...)
		}
		for name, candidates := range found {
			if field, ok := dominantField(candidates); ok && !taken[name] {
				fields[name] = field
			}
			taken[name] = true
		}
		level = nextLevel(deeper, seen)
	}
	return fields
}

// nextLevel drops types that were searched before and merges equal ones.
func nextLevel(deeper []embeddedStruct, seen map[reflect.Type]bool) (level []embeddedStruct) {
	at := map[reflect.Type]int{}
	for _, e := range deeper {
		if i, ok := at[e.t]; ok {
			level[i].twice = true
		} else if !seen[e.t] {
			at[e.t] = len(level)
			level = append(level, e)
			seen[e.t] = true
		}
	}
	return level
}

// collect adds a struct's own fields to found and returns the structs that it embeds.
func (e embeddedStruct) collect(found map[string][]field) (deeper []embeddedStruct) {
	for i := range e.t.NumField() {
		sf := e.t.Field(i)
		elem := sf.Type
		if elem.Kind() == reflect.Pointer && elem.Name() == "" {
			elem = elem.Elem()
		}
		tag := sf.Tag.Get("json")
		if tag == "-" || !sf.IsExported() && (!sf.Anonymous || elem.Kind() != reflect.Struct) {
			continue
		}
		name, options, _ := strings.Cut(tag, ",")
		if !isFieldName(name) {
			name = ""
		}
		index := append(slices.Clone(e.index), i)
		if name == "" && sf.Anonymous && elem.Kind() == reflect.Struct {
			deeper = append(deeper, embeddedStruct{t: elem, index: index})
			continue
		}
		field := field{index: index, tagged: name != ""}
		field.quoted = slices.Contains(strings.Split(options, ","), "string") && isQuotable(elem.Kind())
		name = cmp.Or(name, sf.Name)
		found[name] = append(found[name], field)
		if e.twice {
			found[name] = append(found[name], field)
		}
	}
	return deeper
}

// dominantField picks the only tagged candidate, or else the only candidate.
func dominantField(candidates []field) (field, bool) {
	tagged := slices.DeleteFunc(slices.Clone(candidates), func(f field) bool { return !f.tagged })
	if len(tagged) > 0 {
		candidates = tagged
	}
	return candidates[0], len(candidates) == 1
}

// isFieldName reports whether encoding/json accepts a name in a tag.
func isFieldName(name string) bool {
	return name != "" && !strings.ContainsFunc(name, func(c rune) bool {
		return !strings.ContainsRune("!#$%&()*+-./:;<=>?@[]^_{|}~ ", c) && !unicode.IsLetter(c) && !unicode.IsDigit(c)
	})
}

func isQuotable(k reflect.Kind) bool {
	return k == reflect.String || k == reflect.Bool || k >= reflect.Int && k <= reflect.Float64
}
