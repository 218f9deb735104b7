package drift

import (
	"testing"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

func TestANegativeAnswerIsNoError(t *testing.T) {
	for name, test := range map[string]struct {
		result  any
		failure string
		outcome string
		want    bool
	}{
		"a search that found nothing":   {"<returncode>1</returncode>\n<output>\n</output>", "exit", "", true},
		"no output at all":              {"", "exit status 1", "", true},
		"an object":                     {map[string]any{"exit_code": 1, "stdout": "", "stderr": ""}, "Command failed with exit code 1", "", true},
		"content of MCP":                {[]any{map[string]any{"type": "text", "text": ""}}, "", "", true},
		"it says why":                   {"<returncode>1</returncode>\n<output>grep: no such file</output>", "exit", "", false},
		"it could not do its work":      {"<returncode>2</returncode>\n<output>\n</output>", "exit", "", false},
		"it was killed":                 {map[string]any{"exit_code": 137, "stdout": ""}, "exit", "", false},
		"the error says why":            {"", "permission denied", "", false},
		"nobody knows what it answered": {nil, "exit status 1", "", false},
		"the agent says so":             {"3c3\n< a\n---\n> b", "exit status 1", ckpt.StepNegative, true},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMade(t)
			for i := range 4 {
				m.step("bash", map[string]any{"command": "grep", "n": i}, test.result, test.failure, func(s *ckpt.Step) {
					s.Status, s.Outcome = ckpt.StepFailed, ckpt.Ref(test.outcome)
				})
			}
			if got := m.prints[0].Negative; got != test.want {
				t.Errorf("negative is %v", got)
			}
			if fired := m.first(RuleErrorStreak, ckpt.SeverityWarn) >= 0; fired == test.want {
				t.Errorf("error_streak: %v", m.all())
			}
		})
	}
}

// TestTheSameNegativeAnswerRepeats: the same question that repeatedly gets a
// negative answer is still a loop.
func TestTheSameNegativeAnswerRepeats(t *testing.T) {
	m := newMade(t)
	for range 4 {
		m.step("bash", map[string]any{"command": "grep x a"}, "<returncode>1</returncode>\n<output>\n</output>", "exit")
	}
	m.expect(RuleRepeat, ckpt.SeverityWarn, 3)
}
