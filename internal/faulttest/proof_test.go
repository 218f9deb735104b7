//go:build linux

package faulttest

import (
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
)

func init() { addRow("F10", "the harness itself: planted mistakes", false, plantedMistakes) }

// mistakes are planted in builds of their own, and what finds each.
var mistakes = []struct{ name, what, by, sign string }{
	{"early", "acknowledged before the commit", "kill -9", `I1: .* is missing|I6: .* is gone`},
	{"normal", "synchronous=NORMAL", "replay", `bad: [1-9].*`},
	{"normal", "synchronous=NORMAL", "ext4", `[0-9]+ acknowledged saves are lost`},
	{"keys", "no idempotency", "kill -9", `I3: .*|I2: .*`},
	{"fence", "no fencing", "kill -9", `fence: .* was answered with <nil>`},
	{"retention", "retention one too eager", "kill -9", `I6: .*`},
	{"hash", "hash not checked", "flipped bits", `I1: .* is served`},
}

// plantedMistakes is F10: the harness, built with each mistake in turn, must
// find it. A harness that finds nothing may be blind.
func plantedMistakes(t *testing.T) {
	if buildTags != "" {
		t.Skip("this build has a planted mistake itself")
	}
	for _, m := range mistakes {
		t.Run(m.name+" by "+m.by, func(t *testing.T) {
			find := "^TestPlanted$/^" + strings.ReplaceAll(m.by, " ", "_") + "$"
			cmd := exec.Command("go", "test", "-tags", "planted", "-count=1", "-timeout", "10m", "-run", find, "-v", ".", "-seed", fmt.Sprint(*seed))
			cmd.Env = append(os.Environ(), plantedVariable+"="+m.name)
			out, err := cmd.CombinedOutput()
			found := regexp.MustCompile(m.sign).FindString(string(out))
			switch {
			case strings.Contains(string(out), "[build failed]"), strings.Contains(string(out), "does not build"):
				t.Fatalf("the build with a planted mistake failed:\n%s", tail(string(out), 2000))
			case err == nil && strings.Contains(string(out), "--- SKIP"):
				t.Skipf("what would find it is skipped here:\n%s", tail(string(out), 500))
			case err == nil || found == "":
				t.Errorf("%s was not found (seed %d): %v\n%s", m.what, *seed, err, tail(string(out), 3000))
			default:
				note(t, "%s, found by %s with seed %d: %s", m.what, m.by, *seed, tail(found, 160))
			}
			count(t, figures{rounds: 1})
		})
	}
}
