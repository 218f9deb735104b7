package adaptertest

import (
	"os"
	"strings"
	"testing"
)

// Documented finds each Go snippet of a section of docs/ADAPTERS.md in example_test.go,
// whose code runs in the tests. There must be at least some snippets.
func Documented(t *testing.T, section string, some int) {
	t.Helper()
	text, err := os.ReadFile("../../docs/ADAPTERS.md")
	Must(t, err)
	source, err := os.ReadFile("example_test.go")
	Must(t, err)
	_, found, _ := strings.Cut(string(text), "\n## "+section+"\n")
	found, _, _ = strings.Cut(found, "\n## ")
	blocks := 0
	for i, part := range strings.Split(found, "```") {
		snippet, isGo := strings.CutPrefix(part, "go\n")
		if i%2 == 0 || !isGo {
			continue
		}
		blocks++
		if !strings.Contains(flat(string(source)), flat(snippet)) {
			t.Errorf("no test runs this snippet of docs/ADAPTERS.md:\n%s", snippet)
		}
	}
	if blocks < some {
		t.Errorf("the section has %d snippets, and %d are expected", blocks, some)
	}
}

// flat takes the indentation away.
func flat(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	for i := range lines {
		lines[i] = strings.TrimSpace(lines[i])
	}
	return strings.Join(lines, "\n")
}
