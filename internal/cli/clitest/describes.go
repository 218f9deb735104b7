package clitest

import (
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"
)

// Describes checks that a section of a document names every field of a JSON report. The
// section "## What all have" counts for every report.
func Describes(t *testing.T, path, head string, report any) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	section := sectionOf(string(text), head)
	if section == "" {
		t.Errorf("there is no section %q", head)
	}
	section += sectionOf(string(text), "## What all have")
	for _, field := range jsonFields(reflect.TypeOf(report)) {
		if !regexp.MustCompile("`" + field + "`").MatchString(section) {
			t.Errorf("%s: %s is not described", head, field)
		}
	}
}

func sectionOf(doc, head string) string {
	_, section, _ := strings.Cut(doc, head+"\n")
	section, _, _ = strings.Cut(section, "\n## ")
	return section
}

// jsonFields returns the names of all fields of a type and of the types inside it.
func jsonFields(t reflect.Type) (names []string) {
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice:
		return jsonFields(t.Elem())
	case reflect.Struct:
	default:
		return nil
	}
	for f := range t.Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name != "" {
			names = append(names, name)
		}
		if name != "" || f.Anonymous {
			names = append(names, jsonFields(f.Type)...)
		}
	}
	return names
}
