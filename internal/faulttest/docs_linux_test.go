package faulttest

import (
	"os"
	"regexp"
	"slices"
	"testing"
)

// TestTheDocumentListsTheRows compares the tables of docs/RELIABILITY.md with the matrix: every row has its figures
// there, the document names no row that does not exist, and the promises name only existing rows.
func TestTheDocumentListsTheRows(t *testing.T) {
	text, err := os.ReadFile("../../docs/RELIABILITY.md")
	must(t, err)
	names := make([]string, len(rows))
	for i, r := range rows {
		names[i] = r.name
	}
	slices.SortFunc(names, func(a, b string) int { return number(a) - number(b) })
	if unique := slices.Compact(slices.Clone(names)); len(unique) != len(names) {
		t.Errorf("two rows have the same name: %v", names)
	}
	// A row of the table of figures has six columns. A row of the table of findings has three.
	var told []string
	for _, m := range regexp.MustCompile(`(?m)^\| (F\d+) \|(?:[^|\n]*\|){5}$`).FindAllSubmatch(text, -1) {
		told = append(told, string(m[1]))
	}
	if !slices.Equal(told, names) {
		t.Errorf("the table of figures has %v, the matrix has %v", told, names)
	}
	for _, name := range regexp.MustCompile(`\bF\d+\b`).FindAllString(string(text), -1) {
		if !slices.Contains(names, name) {
			t.Errorf("the document names %s, which the matrix does not have", name)
		}
	}
}
