package hookcmd

import (
	"regexp"
	"strings"
	"testing"
)

func TestWordsOfACommandOnWindows(t *testing.T) {
	for word, want := range map[string]string{
		"plain":                    "plain",
		"":                         `""`,
		"two words":                `"two words"`,
		`^shell kubectl\s+delete`:  `"^shell kubectl\s+delete"`,
		`say "x"`:                  `"say \"x\""`,
		`a backslash at the end\`:  `"a backslash at the end\\"`,
		`a backslash before \"`:    `"a backslash before \\\""`,
		"C:/Program Files/x.exe":   `"C:/Program Files/x.exe"`,
		"//./pipe/ckptsidecar-own": "//./pipe/ckptsidecar-own",
	} {
		if got := quote("windows", word); got != want {
			t.Errorf("%s is written as %s, want %s", word, got, want)
		}
	}
}

// TestPatternsOnWindows: Git's bash takes a backslash before some characters away, also within
// double quotes. A pattern has none there, and matches the same.
func TestPatternsOnWindows(t *testing.T) {
	for pattern, matches := range map[string]string{
		`\\\\server\\share`: `\\server\share`,
		`cost \$5`:          "cost $5",
		"a \\` b":           "a ` b",
		"a ` b":             "a ` b",
		`[\\]\\$`:           `\\`,
		`kubectl\s+delete$`: "kubectl  delete",
		`say \"x"`:          `say "x"`,
		`\\\$`:              `\$`,
	} {
		got := patterns("windows", []string{pattern})[0]
		for _, taken := range []string{`\\`, `\$`, "`"} {
			if strings.Contains(got, taken) {
				t.Errorf("%s is written as %s", pattern, got)
			}
		}
		if !regexp.MustCompile(pattern).MatchString(matches) || !regexp.MustCompile(got).MatchString(matches) {
			t.Errorf("%s, written as %s, does not match %s", pattern, got, matches)
		}
		if same := patterns("linux", []string{pattern})[0]; same != pattern {
			t.Errorf("elsewhere %s is written as %s", pattern, same)
		}
	}
	if literal := `\Qa\\b\E`; patterns("windows", []string{literal})[0] != literal {
		t.Error("a backslash in a literal part is no escape")
	}
}
