package drift

import (
	"fmt"
	"strings"
	"testing"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

// TestCallsThatTimeOutHaveOneTrouble: calls that are stopped because they take
// too long all have the same error signature, whatever they had printed until
// then.
func TestCallsThatTimeOutHaveOneTrouble(t *testing.T) {
	for name, timeout := range map[string]func(i int) string{
		"said first": func(i int) string { return "Command timed out after 30s.\n" + chatter(i) },
		"said last":  func(i int) string { return chatter(i) + "\n[Command TIMED OUT after 30 seconds]" },
		"said alone": func(i int) string {
			return fmt.Sprintf("The last command <command>pip --try %d</command> timed out and was stopped.", i)
		},
		"said with what it wrote": func(i int) string {
			return "Command timed out after 30s.\n" + strings.Repeat(string(rune('a'+i)), 20)
		},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMade(t)
			for i := range 5 {
				m.step("bash", map[string]any{"command": fmt.Sprintf("pip install%s --retries %d torch", []string{"", " --out x"}[i%2], i)}, timeout(i), "exit status 124")
				m.step("bash", map[string]any{"command": fmt.Sprintf("ls wheels/%d", i)}, fmt.Sprintf("wheel-%d.whl", i), "")
			}
			m.expect(RuleRepeatedError, ckpt.SeverityWarn, 8)
			for _, f := range m.found {
				if f.Rule == RuleRepeatedError && f.Message != "bash timed out 5 times in the last 9 steps." {
					t.Errorf("it says: %s", f.Message)
				}
			}
		})
	}
}

// TestCallsThatFailOtherwiseHaveTroublesOfTheirOwn: a long output that names
// different errors each time is not a timeout.
func TestCallsThatFailOtherwiseHaveTroublesOfTheirOwn(t *testing.T) {
	m := newMade(t)
	for i := range 5 {
		m.step("bash", map[string]any{"command": fmt.Sprintf("pip install --retries %d torch", i)}, chatter(i), "exit status 1")
		m.step("bash", map[string]any{"command": fmt.Sprintf("ls wheels/%d", i)}, fmt.Sprintf("wheel-%d.whl", i), "")
	}
	m.expect(RuleRepeatedError, ckpt.SeverityWarn, -1)
}

// chatter is a long output with its own error line.
func chatter(i int) string {
	word := string(rune('a' + i))
	return strings.Repeat("Collecting "+word+"-package\n", 60) + "ERROR: no matching distribution for " + strings.Repeat(word, 5) + "\n" +
		strings.Repeat("Using cached "+word+"\n", 60)
}
