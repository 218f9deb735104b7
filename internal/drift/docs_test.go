package drift

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ckptsidecar/ckptsidecar/internal/drift/rule"
	"github.com/ckptsidecar/ckptsidecar/internal/drift/schema"
)

// TestDocsNameEverything: docs/DRIFT.md has every rule with its thresholds,
// every measure and every function.
func TestDocsNameEverything(t *testing.T) {
	data, err := os.ReadFile(filepath.FromSlash("../../docs/DRIFT.md"))
	if err != nil {
		t.Fatal(err)
	}
	text := string(data)
	for i := range catalogue {
		rule := &catalogue[i]
		if rule.elsewhere {
			continue
		}
		_, row, found := strings.Cut(text, "| `"+rule.name+"` | ")
		if !found {
			t.Errorf("docs/DRIFT.md has no row for %s", rule.name)
			continue
		}
		row, _, _ = strings.Cut(row, "\n")
		for _, threshold := range []threshold{rule.warn, rule.critical} {
			if threshold.value == 0 || !rule.counts {
				continue
			}
			if want := "| " + threshold.String() + " |"; !strings.Contains("| "+row, want) {
				t.Errorf("the row of %s does not say %q: %s", rule.name, want, row)
			}
		}
	}
	for _, word := range measureNames() {
		if !strings.Contains(text, word) {
			t.Errorf("docs/DRIFT.md does not name %s", word)
		}
	}
	for what, limit := range map[string]int{"units of work of a rule": rule.MaxWork, "of all rules": rule.MaxWorkTogether, "of a schema": schema.MaxWork} {
		if !strings.Contains(text, grouped(limit)) {
			t.Errorf("docs/DRIFT.md does not say that %s are at most %s", what, grouped(limit))
		}
	}
}

// grouped formats a number with commas.
func grouped(n int) string {
	if n < 1000 {
		return fmt.Sprint(n)
	}
	return grouped(n/1000) + fmt.Sprintf(",%03d", n%1000)
}
