package jsontext

import (
	"cmp"
	"reflect"
	"slices"
	"strings"
	"sync"
	"unicode"
)

// field is a field as encoding/json sees it, reached by index.
type field struct {
	index  []int
	tagged bool // its name comes from a tag
	quoted bool // it has the option ",string"
}

// fieldCache caches what fieldsOf finds, by reflect.Type.
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

// embeddedStruct is a struct type to be searched and how to reach it.
type embeddedStruct struct {
	t     reflect.Type
	index []int
	twice bool // it is embedded more than once at its level: all ambiguous
}

// findFields searches a type and the structs embedded in it, level by level:
// a name found at one level hides it at deeper ones, and a name that is
// ambiguous at its level is no field at all, as in Go itself, but for a tag
// winning over its absence.
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

// nextLevel drops types that were searched before and joins equal ones.
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

// collect adds a struct's own fields to found and returns what it embeds.
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

// dominantField picks the only tagged candidate, else the only one.
func dominantField(candidates []field) (field, bool) {
	tagged := slices.DeleteFunc(slices.Clone(candidates), func(f field) bool { return !f.tagged })
	if len(tagged) > 0 {
		candidates = tagged
	}
	return candidates[0], len(candidates) == 1
}

// isFieldName reports whether encoding/json takes a tag's name.
func isFieldName(name string) bool {
	return name != "" && !strings.ContainsFunc(name, func(c rune) bool {
		return !strings.ContainsRune("!#$%&()*+-./:;<=>?@[]^_{|}~ ", c) && !unicode.IsLetter(c) && !unicode.IsDigit(c)
	})
}

func isQuotable(k reflect.Kind) bool {
	return k == reflect.String || k == reflect.Bool || k >= reflect.Int && k <= reflect.Float64
}
