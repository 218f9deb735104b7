package server_test

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

var (
	inBraces = regexp.MustCompile(`[{,] description: ([^"'|>][^}]*)`)
	list     = regexp.MustCompile(`\[[^\]]*\]`)
	member   = regexp.MustCompile(`^[$A-Za-z_]+: `)
)

// TestNoCommaEndsADescription: inside braces a comma ends a text without
// quotes. The rest becomes a separate member, which the linter refuses.
func TestNoCommaEndsADescription(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../../api/openapi.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for i, line := range strings.Split(string(text), "\n") {
		for _, m := range inBraces.FindAllStringSubmatch(line, -1) {
			for _, part := range strings.Split(list.ReplaceAllString(m[1], ""), ", ")[1:] {
				if !member.MatchString(part) {
					t.Errorf("api/openapi.yaml:%d: %q is cut at a comma: put it in quotes", i+1, m[1])
				}
			}
		}
	}
}
