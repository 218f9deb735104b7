package mcpserver

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/jsontext"
)

// schemaOf makes the JSON Schema of a struct. Tags of its fields add to it: doc is the
// description, enum the allowed values, type a narrower type. Members without omitempty
// are required. Other members are not allowed.
func schemaOf(t reflect.Type) map[string]any {
	properties := map[string]any{}
	for _, f := range fieldsOf(t) {
		properties[f.name] = f.schema()
	}
	schema := map[string]any{"type": "object", "properties": properties, "additionalProperties": false}
	if required := requiredOf(t); len(required) > 0 {
		schema["required"] = required
	}
	return schema
}

// field is a member of a struct's JSON.
type field struct {
	name     string
	required bool
	reflect.StructField
}

func fieldsOf(t reflect.Type) (list []field) {
	for _, f := range reflect.VisibleFields(t) {
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if f.Anonymous || !f.IsExported() || name == "-" {
			continue
		}
		list = append(list, field{name, !strings.Contains(options, "omit"), f})
	}
	return list
}

func requiredOf(t reflect.Type) (names []string) {
	for _, f := range fieldsOf(t) {
		if f.required {
			names = append(names, f.name)
		}
	}
	return names
}

// enum returns the values that a field allows, nil if it allows all.
func (f field) enum() []string {
	if list := f.Tag.Get("enum"); list != "" {
		return strings.Split(list, ",")
	}
	return nil
}

func (f field) schema() map[string]any {
	schema := typeSchema(f.Type)
	if narrower := f.Tag.Get("type"); narrower != "" {
		schema["type"] = narrower
	}
	if doc := f.Tag.Get("doc"); doc != "" {
		schema["description"] = doc
	}
	if enum := f.enum(); enum != nil {
		schema["enum"] = enum
	}
	return schema
}

func typeSchema(t reflect.Type) map[string]any {
	switch t {
	case reflect.TypeFor[ckpt.JSON](), reflect.TypeFor[json.RawMessage]():
		return map[string]any{} // any value
	}
	switch t.Kind() {
	case reflect.Pointer:
		return typeSchema(t.Elem())
	case reflect.String:
		return map[string]any{"type": "string"}
	case reflect.Bool:
		return map[string]any{"type": "boolean"}
	case reflect.Int, reflect.Int64:
		return map[string]any{"type": "integer"}
	case reflect.Float64:
		return map[string]any{"type": "number"}
	case reflect.Slice:
		return map[string]any{"type": "array", "items": typeSchema(t.Elem())}
	case reflect.Map:
		return map[string]any{"type": "object", "additionalProperties": typeSchema(t.Elem())}
	case reflect.Struct:
		return schemaOf(t)
	}
	panic(fmt.Sprintf("mcpserver: no schema for %s", t)) // this is a mistake in one of our tools, which every test finds
}

// readArguments reads what a model has sent. Its errors use the names that the model
// knows.
func readArguments(arguments []byte, into any) error {
	if len(arguments) == 0 {
		arguments = []byte("{}")
	}
	t := reflect.TypeOf(into).Elem()
	if err := jsontext.Decode(arguments, into); err != nil {
		return fmt.Errorf("the arguments are wrong: %w. %s", err, takes(t))
	}
	given := map[string]bool{}
	jsontext.Members(arguments, func(name string, value []byte) bool {
		given[name] = string(value) != "null"
		return true
	})
	for _, f := range fieldsOf(t) {
		if f.required && !given[f.name] {
			what := f.name + " is missing"
			if doc := f.Tag.Get("doc"); doc != "" {
				what += ": " + doc
			}
			return fmt.Errorf("the argument %s. %s", what, takes(t))
		}
		value := reflect.ValueOf(into).Elem().FieldByIndex(f.Index)
		if enum := f.enum(); enum != nil && given[f.name] && !slices.Contains(enum, value.String()) {
			return fmt.Errorf("the argument %s is %q: it must be one of %s", f.name, cut(value.String(), 40), strings.Join(enum, ", "))
		}
		if f.Tag.Get("type") == "object" && given[f.name] && !isObject(value.Bytes()) {
			return fmt.Errorf("the argument %s must be a JSON object, such as {\"goal\": \"…\", \"done\": [], \"next\": \"…\"}", f.name)
		}
	}
	return nil
}

func isObject(value []byte) bool {
	return strings.HasPrefix(strings.TrimLeft(string(value), " \t\r\n"), "{")
}

// takes lists the arguments of a tool.
func takes(t reflect.Type) string {
	var required, optional []string
	for _, f := range fieldsOf(t) {
		if f.required {
			required = append(required, f.name)
		} else {
			optional = append(optional, f.name)
		}
	}
	switch {
	case len(required) == 0:
		return "All arguments are optional: " + strings.Join(optional, ", ") + "."
	case len(optional) == 0:
		return "Required: " + strings.Join(required, ", ") + "."
	}
	return "Required: " + strings.Join(required, ", ") + "; optional: " + strings.Join(optional, ", ") + "."
}

// cut shortens a text to at most so many bytes, at the end of a character.
func cut(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + "…"
}
