package ckptsidecar_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// featureRows returns the rows that docs/FEATURES.md must have.
func featureRows() (rows []string) {
	for _, of := range []struct {
		letter string
		count  int
	}{{"P", 12}, {"D", 14}, {"B", 3}, {"T", 7}, {"L", 10}} {
		for i := range of.count {
			rows = append(rows, fmt.Sprint(of.letter, i+1))
		}
	}
	return append(rows, "workflow snapshots", "loops of states", "checkpoints of statements")
}

var shownBy = regexp.MustCompile("`([^`#]+)(?:#([^`]+))?`")

// TestFeatures: docs/FEATURES.md has each row, and each test that it names
// exists.
func TestFeatures(t *testing.T) {
	rows := map[string]string{}
	for line := range strings.Lines(read(t, "docs/FEATURES.md")) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), " | ")
		if !strings.HasPrefix(line, "| ") || len(cells) != 3 {
			continue
		}
		name := strings.TrimSpace(cells[0])
		if name == "row" {
			continue // a heading
		}
		if rows[name] != "" {
			t.Errorf("%s is there twice", name)
		}
		rows[name] = cells[2]
	}
	for _, row := range featureRows() {
		tests := shownBy.FindAllStringSubmatch(rows[row], -1)
		if len(tests) == 0 {
			t.Errorf("%s: no test shows it", row)
		}
		for _, test := range tests {
			if err := thereIs(test[1], test[2]); err != nil {
				t.Errorf("%s: %v", row, err)
			}
		}
	}
	if len(rows) != len(featureRows()) {
		t.Errorf("there are %d rows, and %d are known: add new ones to featureRows", len(rows), len(featureRows()))
	}
}

// thereIs looks for a test in its file: Go, Python, TypeScript, or a story.
func thereIs(file, name string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	declaration := ""
	switch {
	case strings.HasSuffix(file, "_test.go"):
		declaration = "\nfunc " + name + "(t *testing.T) {"
	case strings.HasSuffix(file, ".py"):
		declaration = "def " + name + "(self"
	case strings.HasSuffix(file, ".test.ts"):
		declaration = "test('" + name + "'"
	case filepath.Ext(file) == ".txtar" && name == "":
		declaration = "exec ckptsidecar "
	default:
		return fmt.Errorf("%s is no file of tests", file)
	}
	if name == "" && filepath.Ext(file) != ".txtar" || !strings.Contains(string(text), declaration) {
		return fmt.Errorf("%s has no %q", file, name)
	}
	return nil
}
