package drift

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

// ending makes a rule fire, ends it, and makes it fire again.
type ending struct {
	rule   string
	policy func(*ckpt.Policy)
	fire   func(m *made, round int)
	mend   func(m *made, round int)
}

func fresh(n int) func(*made, int) {
	return func(m *made, round int) {
		for i := range n {
			m.step("work", fmt.Sprint(round, " ", i), fmt.Sprint("new ", round, " ", i), "")
		}
	}
}

func saves(states ...string) func(*made, int) {
	return func(m *made, _ int) {
		for i, s := range states {
			m.save(json.RawMessage(strings.ReplaceAll(s, "#", strconv.Itoa(i))))
		}
	}
}

func only(rule string) func(*ckpt.Policy) {
	return func(p *ckpt.Policy) {
		p.Detectors = map[string]ckpt.Detector{}
		for i := range catalogue {
			if name := catalogue[i].name; name != rule {
				p.Detectors[name] = ckpt.Detector{Tier: ckpt.TierOff}
			}
		}
	}
}

func failing(tools ...string) func(*made, int) {
	return func(m *made, round int) {
		for i := range 6 {
			m.step(tools[i%len(tools)], fmt.Sprint(round, i), nil, "429 Too Many Requests")
		}
	}
}

// gauged makes calls that need so many times as much as before, and then as much as before.
func gauged(rule string, usual, times int64, set func(*ckpt.Step, *int64)) ending {
	play := func(m *made, name string, n int, times int64) {
		for i := range n {
			value := (usual + int64(i%3)) * times
			m.step("think", fmt.Sprint(name, i), fmt.Sprint(name, i), "", func(s *ckpt.Step) { set(s, &value) })
		}
	}
	return ending{rule, nil, func(m *made, round int) {
		if round == 0 {
			play(m, "usual", 24, 1)
		}
		play(m, fmt.Sprint("slow", round), 6, times)
	}, func(m *made, round int) { play(m, fmt.Sprint("mended", round), 60, 1) }}
}

var endings = []ending{
	{RuleRepeat, nil, func(m *made, _ int) {
		for range 5 {
			m.step("search", "x", "nothing", "")
		}
	}, fresh(20)},
	{RuleCycle, nil, func(m *made, round int) {
		for i := range 6 {
			m.step([]string{"read", "edit"}[i%2], fmt.Sprint(round, i%2), "same", "")
		}
	}, fresh(15)},
	{RuleStale, nil, func(m *made, round int) {
		for i := range 16 {
			m.step("read", fmt.Sprint(round, " ", i%8), fmt.Sprint("text ", round, i%8), "")
		}
	}, fresh(8)},
	{RuleErrorStreak, nil, failing("fetch"), fresh(10)},
	{RuleErrorRate, nil, failing("fetch"), fresh(10)},
	{RuleSameError, nil, failing("fetch", "search"), fresh(10)},
	{RuleRepeatedError, nil, failing("fetch"), fresh(10)},
	{RuleRepeatedResult, nil, func(m *made, _ int) {
		for range 8 {
			m.step("search", nil, "nothing", "")
		}
	}, fresh(12)},
	{RuleChurn, nil, func(m *made, round int) {
		for i := range 4 {
			m.step("bash", map[string]any{"command": fmt.Sprintf("git checkout -- lock%d.go", round)}, "Updated "+strconv.Itoa(i), "")
		}
	}, fresh(50)},
	{RuleEdgeRevisits, nil, func(m *made, round int) {
		for i := range 50 {
			m.enter([]string{"plan", "check"}[i%2] + strconv.Itoa(round))
		}
	}, func(m *made, round int) {
		for i := range 22 {
			m.enter(fmt.Sprint("s", round, i))
		}
	}},
	{RuleBlindSteps, nil, func(m *made, round int) {
		for i := range 20 {
			m.step("search", nil, i, "")
		}
	}, func(m *made, round int) { m.step("search", round, round, "") }},
	{RuleNoProgress, func(p *ckpt.Policy) { p.NoProgressSteps = 3 }, func(m *made, round int) {
		p := float64(round)
		m.beat(&p)
		fresh(7)(m, round)
	}, func(m *made, round int) { p := float64(round) + 0.5; m.beat(&p) }},
	{RuleProgressReversed, nil, func(m *made, _ int) {
		for _, p := range []float64{0.5, 0.25} {
			m.beat(&p)
		}
	}, func(m *made, _ int) { p := 0.5; m.beat(&p) }},
	{RuleUnparsable, nil, func(m *made, round int) { m.step("search", round, `{"results": [`+"{", "") }, fresh(5)},
	{RuleSchema, func(p *ckpt.Policy) { p.Schema = ckpt.JSON(`{"required":["goal"]}`) }, saves(`{"n":#}`), saves(`{"goal":"g"}`)},
	{RuleLostKeys, nil, saves(`{"a":1,"b":2}`, `{"a":1,"b":2}`, `{"a":1,"b":2}`, `{"b":2}`), saves(`{"a":1,"b":2}`)},
	{RuleTypeChanged, nil, saves(`{"a":1}`, `{"a":"x"}`), saves(`{"a":2}`)},
	{RuleCounterReversed, nil, saves(`{"n":11}`, `{"n":12}`, `{"n":13}`, `{"n":14}`, `{"n":15}`, `{"n":1}`), saves(`{"n":15}`)},
	{RuleCheckpointSize, nil, func(m *made, _ int) {
		m.save(map[string]any{"log": strings.Repeat("x", 500)})
		m.save(map[string]any{"log": strings.Repeat("x", 50)})
	}, func(m *made, _ int) { m.save(map[string]any{"log": strings.Repeat("x", 51)}) }},
	{RuleGoalChanged, nil, func(m *made, _ int) {
		m.declare("count the sheep")
		m.declare("explore Antarctica")
	}, func(m *made, _ int) { m.declare("count the sheep") }},
	{RuleStaleCheckpoint, nil, func(m *made, _ int) {
		m.now = m.now.Add(31 * time.Minute)
		m.beat(nil)
	}, saves(`{"n":#}`)},
	{RuleContextAge, nil, func(m *made, _ int) {
		m.now = m.now.Add(125 * time.Minute)
		m.beat(nil)
	}, func(m *made, _ int) { m.save(map[string]any{"n": 1}, ckpt.KindRecovery) }},
	{RuleBudget, func(p *ckpt.Policy) { p.Budget.Steps = 10 }, func(m *made, _ int) {
		for len(m.prints) < int(m.policy.Budget.Steps) {
			fresh(1)(m, len(m.prints))
		}
	}, func(m *made, _ int) { // the policy allows more
		m.policy.Budget.Steps *= 3
		m.restart()
	}},
	{RuleSchemaStopped, func(p *ckpt.Policy) { p.Schema = ckpt.JSON(`{"required":["l"]}`) }, saves(`{"l":[` + strings.Repeat("0,", 2_000_000) + `0]}`), saves(`{"l":[0]}`)},
	{"mine", ruledAs("state.n > 3", ""), saves(`{"n":4}`), saves(`{"n":3}`)},
	gauged(RuleLatencyDrift, 100, 5, func(s *ckpt.Step, n *int64) { s.DurationMS = n }),
	gauged(RuleLatencyDrift, 100, 15, func(s *ckpt.Step, n *int64) { s.DurationMS = n }),
	gauged(RuleTokenDrift, 50, 6, func(s *ckpt.Step, n *int64) { s.OutputTokens = n }),
	gauged(RuleTokenDrift, 50, 40, func(s *ckpt.Step, n *int64) { s.OutputTokens = n }),
}

// TestRulesEndAndFireAgain: each rule fires, is over when its sentence says so and not before, and fires again.
func TestRulesEndAndFireAgain(t *testing.T) {
	var text strings.Builder
	for _, e := range endings {
		for _, restarts := range []bool{false, true} {
			m := newMade(t, only(e.rule), func(p *ckpt.Policy) {
				if e.policy != nil {
					e.policy(p)
				}
			})
			for round := range 2 {
				before := len(m.found)
				e.fire(m, round)
				var f *sighting
				for i := before; i < len(m.found); i++ {
					if m.found[i].Rule == e.rule {
						f = &m.found[i]
					}
				}
				if f == nil {
					t.Fatalf("%s does not fire in round %d (restarts %t)", e.rule, round, restarts)
				}
				evidence, _ := json.Marshal(f.Evidence)
				open := ckpt.Finding{Rule: f.Rule, Severity: f.Severity, Evidence: evidence, At: ckpt.At(m.now)}
				if m.run.Over(&open) {
					t.Fatalf("%s is over at once", e.rule)
				}
				if restarts {
					m.open = []ckpt.Finding{open}
					if m.restart(); m.run.Over(&open) {
						t.Fatalf("%s is over after a restart", e.rule)
					}
					m.open = nil
				}
				e.mend(m, round)
				if !m.run.Over(&open) {
					t.Fatalf("%s is not over in round %d (restarts %t): %s", e.rule, round, restarts, evidence)
				}
				if !restarts {
					fmt.Fprintf(&text, "%s %s: %s\n", e.rule, []string{"fires", "fires again"}[round]+" as "+string(f.Severity), f.Message)
				}
			}
		}
		when := "The rule of the user does not hold at the next look."
		for i := range catalogue {
			if catalogue[i].name == e.rule {
				when = catalogue[i].overWhen
			}
		}
		fmt.Fprintf(&text, "  over when: %s\n\n", when)
	}
	for i := range catalogue {
		if rule := catalogue[i]; !rule.elsewhere && !slices.ContainsFunc(endings, func(e ending) bool { return e.rule == rule.name }) {
			t.Errorf("no test ends %s", rule.name)
		}
	}
	golden(t, "endings.golden", text.String())
}

// TestSingleErrorsOfALongRunAreUsual: two tools that have the same error now and then are no cascade.
func TestSingleErrorsOfALongRunAreUsual(t *testing.T) {
	m := newMade(t, only(RuleSameError))
	for i := range 60 {
		text := ""
		if i > 20 && i%5 == 0 {
			text = "429 Too Many Requests"
		}
		m.step([]string{"fetch", "search"}[i/5%2], i, i, text)
	}
	m.expectNone()
}
