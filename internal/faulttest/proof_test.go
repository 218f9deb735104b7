//go:build linux

package faulttest

import (
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/ckptsidecar/ckptsidecar/internal/faulttest/mutants"
	"github.com/ckptsidecar/ckptsidecar/internal/testenv"
)

func init() { addRow("F10", "the harness itself: planted mistakes", true, plantedMistakes) }

// mistakes are mutants of internal/faulttest/mutants, each with the part of the
// harness that finds it. The short matrix runs only the first two.
var mistakes = []struct{ mutant, by, sign string }{
	{"answer-before-commit", "kill -9 fast", `I1: .* is missing|I6: .* is gone`},
	{"synchronous-normal", "replay", `bad: [1-9].*`},
	{"synchronous-normal", "ext4", `[0-9]+ acknowledged saves are lost`},
	{"keys-never-replayed", "kill -9 long", `I3: .*|I2: .*`},
	{"no-fence", "kill -9", `fence: .* was answered with <nil>`},
	{"retention-one-too-few", "kill -9", `I6: .*`},
	{"state-hash-unchecked", "flipped bits", `I1: .* is served`},
	{"doubted-pieces-are-trusted", "changed pieces", `I1: .* is not what was sent`},
}

// plantedMistakes is F10: the harness must find each mistake in a build of the
// program that has the mistake. A harness that never finds anything may be
// blind.
func plantedMistakes(t *testing.T) {
	if os.Getenv(mutants.OverlayVariable) != "" {
		t.Skip("this build has a planted mistake itself")
	}
	root, err := mutants.Root()
	must(t, err)
	list := mistakes
	if isShort() {
		list = list[:2]
	}
	for _, m := range list {
		t.Run(m.mutant+" by "+m.by, func(t *testing.T) {
			if isShort() {
				t.Parallel() // one can build while the other waits
			}
			mutant, err := mutants.ByName(m.mutant)
			must(t, err)
			overlay, err := mutant.Plant(root, t.TempDir())
			must(t, err)
			find := "^TestPlanted$/^" + strings.ReplaceAll(m.by, " ", "_") + "$"
			cmd := exec.Command("go", "test", "-overlay", overlay, "-count=1", "-timeout", "10m", "-run", find, "-v", ".", "-seed", fmt.Sprint(*seed))
			cmd.Env = append(testenv.Environ(), mutants.OverlayVariable+"="+overlay)
			out, err := cmd.CombinedOutput()
			found := regexp.MustCompile(m.sign).FindString(string(out))
			switch {
			case strings.Contains(string(out), "[build failed]"), strings.Contains(string(out), "does not build"):
				t.Fatalf("the build with a planted mistake failed:\n%s", tail(string(out), 2000))
			case err == nil && strings.Contains(string(out), "--- SKIP"):
				t.Skipf("what would find it is skipped here:\n%s", tail(string(out), 500))
			case err == nil || found == "":
				t.Errorf("%s was not found (seed %d): %v\n%s", mutant.What, *seed, err, tail(string(out), 3000))
			default:
				note(t, "%s Found by %s with seed %d: %s", mutant.What, m.by, *seed, tail(found, 160))
			}
			count(t, figures{rounds: 1})
		})
	}
}
