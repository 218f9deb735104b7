package drift

import (
	"encoding/json"
	"fmt"
	"testing"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

// TestUnknownIsNotEmpty: if the arguments or results of two calls were not
// reported, or were replaced or cut on the way, it is unknown whether the calls
// are equal.
func TestUnknownIsNotEmpty(t *testing.T) {
	for name, test := range map[string]struct{ args, result any }{
		"both redacted":       {map[string]any{"command": "__REDACTED__"}, "__REDACTED__"},
		"arguments redacted":  {map[string]any{"path": "a.go", "content": "[redacted]"}, "written"},
		"result redacted":     {map[string]any{"path": "a.go"}, "[REDACTED]"},
		"result in a list":    {map[string]any{"path": "a.go"}, []any{map[string]any{"type": "text", "text": "<redacted>"}}},
		"no result":           {map[string]any{"path": "a.go"}, nil},
		"arguments cut":       {map[string]any{"path": "a.go", "content": "package a … [truncated]"}, "written"},
		"arguments cut short": {map[string]any{"cut": true, "bytes": 90000, "begin": "package a"}, "written"},
		"result cut":          {map[string]any{"path": "a.go"}, "package a\nfunc [TRUNCATED - Content exceeds 60KB limit]"},
		"stars":               {map[string]any{"path": "a.go", "content": "********"}, "written"},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMade(t, detector(RuleBlindSteps, ckpt.Detector{Tier: ckpt.TierOff}))
			for range 24 {
				m.step("write", test.args, test.result, "")
			}
			m.expectNone()
		})
	}
}

// TestSameResultsWithoutArguments: calls whose arguments were not recorded are compared by their results, and warn at
// most. A result that says nothing, other results, other tools, and calls that run at the same time do not count.
func TestSameResultsWithoutArguments(t *testing.T) {
	for name, step := range map[string]func(m *made, i int){
		"no arguments":       func(m *made, _ int) { m.step("search", nil, "the same", "") },
		"arguments are null": func(m *made, _ int) { m.step("search", json.RawMessage("null"), "the same", "") },
	} {
		t.Run(name, func(t *testing.T) {
			m := newMade(t)
			for i := range 24 {
				step(m, i)
			}
			m.expect(RuleRepeatedResult, ckpt.SeverityWarn, 7)
			if got := m.worst(); got != ckpt.SeverityWarn {
				t.Errorf("the worst finding is %s: %s", got, m.all())
			}
		})
	}
	for name, step := range map[string]func(m *made, i int){
		"no result":        func(m *made, _ int) { m.step("search", nil, nil, "") },
		"other results":    func(m *made, i int) { m.step("search", nil, fmt.Sprint("page ", i), "") },
		"other tools":      func(m *made, i int) { m.step(fmt.Sprint("tool ", i), nil, "done", "") },
		"at the same time": func(m *made, _ int) { m.step("search", nil, "done", "", func(s *ckpt.Step) { s.Turn = "one" }) },
		"progress grows": func(m *made, i int) {
			grown := float64(i)
			m.step("search", nil, "done", "", func(s *ckpt.Step) { s.Progress = &grown })
		},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMade(t, detector(RuleBlindSteps, ckpt.Detector{Tier: ckpt.TierOff}))
			for i := range 24 {
				step(m, i)
			}
			m.expectNone()
		})
	}
}

func TestWhatIsKnownIsCompared(t *testing.T) {
	for name, test := range map[string]struct{ args, result any }{
		"no arguments needed":      {map[string]any{}, "the same"},
		"an empty text":            {"", "the same"},
		"a secret among arguments": {map[string]any{"url": "https://a", "api_key": "[redacted]"}, "the same"},
		"a secret inside a text":   {map[string]any{"command": "curl -H 'Authorization: [redacted]' https://a"}, "the same"},
		"cut, with a hash":         {map[string]any{"cut": true, "bytes": 90000, "sha256": "ab12"}, "the same"},
		"speaks of cutting":        {map[string]any{"command": "grep truncated log"}, "the log was truncated at noon"},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMade(t)
			for range 5 {
				m.step("read", test.args, test.result, "")
			}
			m.expect(RuleRepeat, ckpt.SeverityWarn, 3)
		})
	}
}

// TestUnknownCallsThatFailCount: a failure counts as a failure, even if the
// call is unknown, but it counts for nothing else.
func TestUnknownCallsThatFailCount(t *testing.T) {
	m := newMade(t)
	for range 6 {
		m.step("write", nil, "[redacted]", "[redacted]")
	}
	m.expect(RuleErrorStreak, ckpt.SeverityWarn, 2)
	m.expect(RuleErrorStreak, ckpt.SeverityCritical, -1)
	m.expect(RuleRepeat, ckpt.SeverityWarn, -1)
	m.expect(RuleRepeatedError, ckpt.SeverityWarn, -1)
}
