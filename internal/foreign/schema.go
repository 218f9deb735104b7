package foreign

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/ckptsidecar/ckptsidecar/internal/jsontext"
)

// schema is the part of JSON Schema that the formats need.
type schema struct {
	Type       oneOrMore
	Required   []string
	Properties map[string]schema
	Items      *schema
	MinLength  int
}

// oneOrMore is one string, or several in an array.
type oneOrMore []string

// snapshotSchema is the least that a workflow snapshot must fulfill.
// ckpt.SnapshotSchema is stricter.
var snapshotSchema = schema{
	Type: oneOrMore{"object"}, Required: []string{"version", "timestamp", "runId", "workflowId", "status", "stepResults"},
	Properties: map[string]schema{
		"version":          {Type: oneOrMore{"string", "number"}},
		"timestamp":        {Type: oneOrMore{"string", "number"}},
		"runId":            {Type: oneOrMore{"string"}, MinLength: 1},
		"workflowId":       {Type: oneOrMore{"string"}, MinLength: 1},
		"status":           {Type: oneOrMore{"string"}, MinLength: 1},
		"stepResults":      {Type: oneOrMore{"object", "array"}},
		"executionPath":    {Type: oneOrMore{"array", "null"}},
		"suspendedPaths":   {Type: oneOrMore{"object", "array", "null"}},
		"events":           {Type: oneOrMore{"array", "null"}},
		"executionGraph":   {Type: oneOrMore{"object", "array", "null"}},
		"error":            {Type: oneOrMore{"string", "object", "null"}},
		"logs":             {Type: oneOrMore{"array", "null"}},
		"executionContext": {Type: oneOrMore{"object", "null"}},
	},
}

// check returns the first violation of the schema in a value, and its place.
func (s *schema) check(path string, raw []byte) error {
	kind := jsontext.TypeOf(raw)
	if len(s.Type) > 0 && !slices.Contains(s.Type, kind) {
		return at(path, "it is %s %s, and must be %s", article(kind), kind, strings.Join(s.Type, " or "))
	}
	switch kind {
	case "string":
		if text, _ := textOf(raw); s.MinLength > len([]rune(text)) {
			return at(path, "it has fewer than %s", plural(s.MinLength, "character"))
		}
	case "array":
		return s.checkItems(path, raw)
	case "object":
		return s.checkMembers(path, raw)
	}
	return nil
}

func (s *schema) checkItems(path string, raw []byte) error {
	if s.Items == nil {
		return nil
	}
	list, _ := listOf(raw)
	for i, item := range list {
		if err := s.Items.check(path+"/"+strconv.Itoa(i), item); err != nil {
			return err
		}
	}
	return nil
}

func (s *schema) checkMembers(path string, raw []byte) error {
	o, _ := objectOf(raw)
	return s.checkObject(path, o)
}

// checkObject checks the members of an object that was read.
func (s *schema) checkObject(path string, o object) error {
	for _, name := range s.Required {
		if _, there := o.values[name]; !there {
			return at(path, "%s is missing", name)
		}
	}
	for _, name := range o.keys {
		if inner, known := s.Properties[name]; known {
			if err := inner.check(path+"/"+name, o.values[name]); err != nil { // names in the schema need no escapes
				return err
			}
		}
	}
	return nil
}

func at(path, format string, args ...any) error {
	where := "top level"
	if path != "" {
		where = strconv.Quote(path)
	}
	return fmt.Errorf("at %s: %s", where, fmt.Sprintf(format, args...))
}

func article(noun string) string {
	if strings.ContainsRune("aeiou", rune(noun[0])) {
		return "an"
	}
	return "a"
}

func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return strconv.Itoa(n) + " " + noun + "s"
}
