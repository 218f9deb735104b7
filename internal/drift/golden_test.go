package drift

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

var update = flag.Bool("update", false, "write the golden files anew")

// scenes are made-up runs that make every rule fire at each of its severities.
var scenes = []struct {
	policy func(*ckpt.Policy)
	play   func(*made)
}{
	{nil, func(m *made) {
		for range 6 {
			m.step("search", "x", "nothing", "")
		}
	}},
	{nil, func(m *made) {
		for i := range 8 {
			m.step([]string{"read", "edit"}[i%2], i%2, "same", "")
		}
	}},
	{nil, func(m *made) {
		for _, i := range []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 3, 8, 1, 6, 0, 5, 2, 7} {
			m.step("read", i, "text "+strconv.Itoa(i), "")
		}
	}},
	{nil, func(m *made) {
		for i := range 6 {
			m.step("fetch", i, nil, []string{"refused", "reset"}[i%2])
		}
	}},
	{detector(RuleErrorStreak, ckpt.Detector{Tier: "off"}), func(m *made) {
		for i := range 10 {
			m.step("fetch", i, i, map[bool]string{true: "refused"}[i%4 != 1])
		}
	}},
	{detector(RuleErrorStreak, ckpt.Detector{Tier: "off"}), func(m *made) {
		for i := range 6 {
			m.step([]string{"search", "read"}[i%2], i, nil, "429 Too Many Requests")
		}
	}},
	{nil, func(m *made) {
		for i := range 12 {
			m.step("bash", map[string]any{"command": "make t" + strconv.Itoa(i)}, "make: *** no rule", "exit status 2")
		}
	}},
	{nil, func(m *made) {
		for i := range 3 {
			m.step("bash", map[string]any{"command": "git checkout -- lock.go"}, "Updated 1 path from the index "+strconv.Itoa(i), "")
			for j := range 5 {
				m.step("edit", map[string]any{"path": "lock.go", "old_string": strconv.Itoa(i), "new_string": strings.Repeat("x", 10*i+j+8)}, i*100+j, "")
			}
		}
	}},
	{nil, func(m *made) {
		for i := range 50 {
			m.note(m.run.Enter(m.now, []string{"plan", "check"}[i%2], nil))
		}
		m.note(m.run.Enter(m.now, "", map[string]int64{"verify->implement": 21}))
	}},
	{nil, func(m *made) {
		for i := range 20 {
			m.step("search", nil, i, "")
		}
	}},
	{func(p *ckpt.Policy) { p.NoProgressSteps, p.NoProgressTime = 3, ckpt.Duration(time.Hour) }, func(m *made) {
		for i := range 8 {
			m.step("work", i, i, "", func(s *ckpt.Step) { p := 0.5; s.Progress = &p })
		}
		p := 0.25
		m.note(m.run.Beat(m.now.Add(time.Minute), &p))
	}},
	{nil, func(m *made) {
		for i := range 24 {
			took, tokens := int64(100+i%3), int64(50)
			if i >= 20 {
				took, tokens = 5*took, 6*tokens
			}
			m.step("think", i, i, "", func(s *ckpt.Step) { s.DurationMS, s.OutputTokens = &took, &tokens })
		}
	}},
	{func(p *ckpt.Policy) {
		p.Budget = ckpt.Budget{Steps: 10, Tokens: 10_000, CostUSD: 2.5, WallTime: ckpt.Duration(100 * time.Second)}
		p.CheckpointInterval = 0
	}, func(m *made) {
		tokens, cost := int64(1000), 0.25
		for i := range 10 {
			m.now = m.now.Add(9 * time.Second)
			m.step("think", i, i, "", func(s *ckpt.Step) { s.InputTokens, s.CostUSD = &tokens, &cost })
		}
	}},
	{nil, func(m *made) { m.step("search", 1, `{"results": [`+"{", "") }},
	{nil, func(m *made) {
		for i := range 6 {
			m.save(map[string]any{"n": i, "plan": []int{1}, "notes": "text", "log": strings.Repeat("x", 500)})
		}
		m.save(map[string]any{"n": 2, "notes": 3, "log": strings.Repeat("x", 500)})
		m.save(map[string]any{"n": 3, "notes": 3, "log": strings.Repeat("x", 50)})
		m.save(map[string]any{"n": 4, "notes": 3, "log": strings.Repeat("x", 50_000)})
	}},
	{func(p *ckpt.Policy) {
		p.Schema = ckpt.JSON(`{"required":["goal"],"properties":{"n":{"maximum":3}}}`)
	}, func(m *made) { m.save(map[string]any{"n": 4}) }},
	{func(p *ckpt.Policy) { p.Schema = ckpt.JSON(`{"$ref":"#"}`) }, func(m *made) { m.save(map[string]any{"n": 4}) }},
	{nil, func(m *made) {
		m.step("t", 1, 1, "")
		m.note(m.run.Goal(m.now, "count the sheep of the north", false))
		m.note(m.run.Goal(m.now, "explore Antarctica", false))
	}},
	{nil, func(m *made) { m.note(m.run.Beat(m.now.Add(125*time.Minute), nil)) }},
	{ruledAs("state.n > 3", ""), func(m *made) { m.save(map[string]any{"n": 4}) }},
	{ruledAs("any(state.l, any(state.l, any(state.l, false)))", ""), func(m *made) {
		m.save(map[string]any{"l": make([]int, 200)})
	}},
	{func(p *ckpt.Policy) {
		p.Detectors = map[string]ckpt.Detector{RuleErrorStreak: {Tier: "off"}, RuleErrorRate: {Tier: "off"}}
	}, func(m *made) {
		for i := range 8 {
			m.step("bash", map[string]any{"command": "make target" + strconv.Itoa(i)}, "compiling "+strings.Repeat("x", i), "timed out after 2m")
		}
	}},
	{nil, func(m *made) {
		for range 2 {
			m.step("search", "x", "Temporary problem, please try again", "")
		}
	}},
	{nil, func(m *made) {
		for range 8 {
			m.step("search", nil, "nothing", "")
		}
	}},
	{nil, func(m *made) {
		for i := range 25 {
			took, tokens := int64(100+i%3), int64(50)
			if i >= 20 {
				took, tokens = 15*took, 40*tokens
			}
			m.step("think", i, i, "", func(s *ckpt.Step) { s.DurationMS, s.OutputTokens = &took, &tokens })
		}
	}},
}

func ruledAs(when, message string) func(*ckpt.Policy) {
	return func(p *ckpt.Policy) {
		p.Rules = []ckpt.Rule{{Name: "mine", When: when, Severity: ckpt.SeverityWarn, Message: message}}
	}
}

// TestGoldenSentences: the texts of every rule for people and models.
func TestGoldenSentences(t *testing.T) {
	var text strings.Builder
	said := map[string]bool{}
	for i, scene := range scenes {
		m := newMade(t, func(p *ckpt.Policy) {
			p.Detectors = map[string]ckpt.Detector{}
			if scene.policy != nil {
				scene.policy(p)
			}
		})
		scene.play(m)
		for _, f := range m.found {
			said[f.Rule] = true
			fmt.Fprintf(&text, "%s %s (scene %d, step %d)\n  %s\n  -> %s\n  needs %s; saw %s\n\n", f.Rule, f.Severity, i, f.step, f.Message, f.Advice, f.Evidence.Threshold, f.Evidence.Observed)
			if !strings.ContainsAny(f.Message, "0123456789") || !strings.ContainsAny(f.Advice, "0123456789") && f.Rule != RuleBlindSteps {
				t.Errorf("%s names no number: %s %s", f.Rule, f.Message, f.Advice)
			}
		}
	}
	for i := range catalogue {
		if rule := &catalogue[i]; !rule.elsewhere && !said[rule.name] {
			t.Errorf("no scene makes %s fire", rule.name)
		}
	}
	golden(t, "sentences.golden", text.String())
}

// TestGoldenRules: the rules with their defaults, at every sensitivity.
func TestGoldenRules(t *testing.T) {
	var text strings.Builder
	for _, sensitivity := range []ckpt.Sensitivity{ckpt.SensitivityLow, ckpt.SensitivityNormal, ckpt.SensitivityHigh} {
		p := ckpt.DefaultPolicy()
		p.Sensitivity = sensitivity
		fmt.Fprintf(&text, "%s\n", sensitivity)
		for _, r := range New().Rules(&p) {
			fmt.Fprintf(&text, "  %-18s %-10s %-8s warn %g in %d, critical %g in %d %s; cooldown %d, over %d\n", r.Rule, r.Family, r.Tier, r.Warn, r.WarnWindow, r.Critical, r.CriticalWindow, r.Unit, r.Cooldown, r.Over)
		}
	}
	golden(t, "rules.golden", text.String())
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if lines := strings.Split(string(want), "\n"); got != string(want) {
		for i, line := range strings.Split(got, "\n") {
			if i >= len(lines) || lines[i] != line {
				t.Fatalf("%s differs at line %d: %q\nrun the test with -update if that is meant", path, i+1, line)
			}
		}
		t.Fatalf("%s is longer than what there is now: %d lines", path, len(lines)-slices.Index(lines, ""))
	}
}
