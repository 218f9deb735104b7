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
	"github.com/ckptsidecar/ckptsidecar/internal/drift/observer"
)

func TestIdenticalPairs(t *testing.T) {
	m := newMade(t)
	for range 30 {
		m.step("search", map[string]any{"q": "x"}, "nothing new", "")
	}
	m.expect(RuleRepeat, ckpt.SeverityWarn, 3)
	m.expect(RuleRepeat, ckpt.SeverityCritical, 4)
	if n := len(m.found); n > 3 {
		t.Errorf("30 identical steps made %d findings: %s", n, m.all())
	}
}

func TestTheSamePairIsKnownWhateverItsForm(t *testing.T) {
	m := newMade(t)
	for i := range 4 {
		args := json.RawMessage(fmt.Sprintf("{\"b\": %s1, \"a\": [1.0,%s2]}", strings.Repeat(" ", i), strings.Repeat(" ", i)))
		if i == 1 {
			args = json.RawMessage(`{"a":[1,2e0],"b":1}`)
		}
		m.step("search", args, fmt.Sprintf("\x1b[3%dmdone\x1b[0m at 2026-11-21T10:00:%02dZ in %d.5 s, pid %d", i, i, i+1, 100+i), "")
	}
	m.expect(RuleRepeat, ckpt.SeverityWarn, 3)
}

func TestOneLoopDoesNotMakeAHundredFindings(t *testing.T) {
	m := newMade(t)
	for range 2000 {
		m.step("search", 1, "same", "")
	}
	if n := len(m.found); n < 3 || n > 12 {
		t.Errorf("2000 identical steps made %d findings: %s", n, m.all())
	}
}

func TestABAndABC(t *testing.T) {
	for size, name := range map[int]string{2: "A-B", 3: "A-B-C", 5: "A-B-C-D-E"} {
		t.Run(name, func(t *testing.T) {
			m := newMade(t)
			for i := range size * 4 {
				m.step("tool"+strconv.Itoa(i%size), i%size, "same", "")
			}
			m.expect(RuleCycle, ckpt.SeverityWarn, size+max(size, 3)-1) // at least 3 steps that only repeat
			m.expect(RuleCycle, ckpt.SeverityCritical, 3*size-1)
		})
	}
}

func TestAWordInBetweenDoesNotEndACycle(t *testing.T) {
	m := newMade(t)
	for i := range 12 {
		m.step("tool"+strconv.Itoa(i%2), i%2, "same", "")
		m.step("message", "I will try again "+strconv.Itoa(i), nil, "")
	}
	m.expect(RuleCycle, ckpt.SeverityWarn, 8)
}

func TestAVisitOfOldSteps(t *testing.T) {
	m := newMade(t)
	for i := range 12 {
		m.step("read", i, "text "+strconv.Itoa(i*i), "")
	}
	order := []int{7, 2, 11, 0, 5, 9, 3, 1, 10, 4, 8, 6}
	for _, i := range order {
		m.step("read", i, "text "+strconv.Itoa(i*i), "")
	}
	m.expect(RuleStale, ckpt.SeverityCritical, 12+5)
	if m.first(RuleRepeat, ckpt.SeverityInfo) >= 0 || m.first(RuleCycle, ckpt.SeverityInfo) >= 0 {
		t.Error(m.all())
	}
}

func TestStaleWarmsUp(t *testing.T) {
	m := newMade(t, detector(RuleStale, ckpt.Detector{Critical: 3, CriticalWindow: 6}))
	for _, i := range []int{0, 1, 2, 1, 0, 2} {
		m.step("read", i, "text "+strconv.Itoa(i), "")
	}
	m.expectNone() // the first 6 steps are the warm-up
	m.step("read", 0, "text 0", "")
	m.expect(RuleStale, ckpt.SeverityCritical, 6)
}

func TestErrorStreak(t *testing.T) {
	m := newMade(t)
	m.step("fetch", 0, "ok", "")
	for i := range 6 {
		m.step("fetch", i+1, nil, "connection refused")
	}
	m.expect(RuleErrorStreak, ckpt.SeverityWarn, 3)
	m.expect(RuleErrorStreak, ckpt.SeverityCritical, 5)
}

func TestErrorsThatDifferCountLess(t *testing.T) {
	words := []string{"no such file", "permission denied", "syntax error", "out of range", "not a table", "bad token", "too short", "unknown verb", "missing brace", "odd length"}
	m := newMade(t)
	for i, w := range words {
		m.step("bash", "try number "+strconv.Itoa(i), nil, w)
	}
	// 5 errors of 5 kinds count as 3, and 9 of 9 kinds as 5.
	m.expect(RuleErrorStreak, ckpt.SeverityWarn, 4)
	m.expect(RuleErrorStreak, ckpt.SeverityCritical, 8)
}

func TestErrorsWithoutAnyTextAreNeverCritical(t *testing.T) {
	m := newMade(t)
	for i := range 12 {
		m.step("fetch", i, nil, "", func(s *ckpt.Step) { s.Status = ckpt.StepFailed })
	}
	m.expect(RuleErrorStreak, ckpt.SeverityWarn, 2)
	for _, f := range m.found {
		if f.Severity == ckpt.SeverityCritical {
			t.Errorf("%s became critical without any result", f.Rule)
		}
	}
}

func TestErrorRate(t *testing.T) {
	m := newMade(t)
	for i := range 20 {
		m.step("fetch", i, "ok "+strconv.Itoa(i), "")
		m.step("send", i, nil, "mailbox is full")
	}
	m.expect(RuleErrorRate, ckpt.SeverityWarn, 9)
	m.expect(RuleErrorStreak, ckpt.SeverityWarn, -1)
	m = newMade(t)
	for i := range 20 {
		failure := "mailbox is full"
		if i%5 == 0 {
			failure = ""
		}
		m.step("send", i, "r"+strconv.Itoa(i), failure)
	}
	m.expect(RuleErrorRate, ckpt.SeverityCritical, 9)
}

func TestSameErrorOfDifferentTools(t *testing.T) {
	m := newMade(t)
	m.step("search", "a", "found 3", "")
	m.step("search", "b", "Error: search service unavailable (HTTP 503).", "", failed)
	m.step("read", "c", "text", "")
	m.step("translate", "d", "Error: translate service unavailable (HTTP 503).", "", failed)
	m.expect(RuleSameError, ckpt.SeverityWarn, 3)
	m = newMade(t)
	for i := range 4 {
		m.step("search", "q"+strconv.Itoa(i), "Error: search service unavailable (HTTP 503).", "", failed)
		m.step("read", i, "text "+strconv.Itoa(i), "")
	}
	m.expect(RuleSameError, ckpt.SeverityWarn, -1) // only one tool
}

func failed(s *ckpt.Step) { s.Status = ckpt.StepFailed }

// TestComplaintsThatAreNoErrors: results that are not marked as errors can be
// complaints, and the same words count.
func TestComplaintsThatAreNoErrors(t *testing.T) {
	m := newMade(t)
	for i := range 3 {
		m.step("lookup", i, []string{"Temporarily out of order, please retry the same query."}, "")
	}
	m.expect(RuleErrorStreak, ckpt.SeverityWarn, 2)
	m = newMade(t)
	for i := range 3 {
		m.step("lookup"+strconv.Itoa(i), i, map[string]any{"isError": true, "content": []any{map[string]any{"type": "text", "text": "quota used up"}}}, "")
	}
	m.expect(RuleErrorStreak, ckpt.SeverityWarn, 2)
	m.expect(RuleSameError, ckpt.SeverityWarn, 1)
}

func TestPollingWithNewResultsIsWork(t *testing.T) {
	for name, result := range map[string]func(i int) any{
		"share":    func(i int) any { return map[string]any{"status": "running", "done": float64(i) / 200} },
		"text":     func(i int) any { return fmt.Sprintf("still building: %d of 200 files", i) },
		"waiting":  func(i int) any { return fmt.Sprintf("not ready, try again later: %d jobs before yours", 200-i) },
		"bytes":    func(i int) any { return fmt.Sprintf("received %d bytes", 1_500_000_000+i*4096) },
		"bytesKey": func(i int) any { return map[string]any{"received_bytes": 1_500_000_000 + i*4096} },
	} {
		t.Run(name, func(t *testing.T) {
			m := newMade(t)
			for i := range 150 {
				m.step("status", map[string]any{"job": 7}, result(i), "")
			}
			m.expectNone()
		})
	}
}

func TestPagingIsWork(t *testing.T) {
	m := newMade(t)
	for i := range 150 {
		m.step("list", map[string]any{"page": i}, []string{"item " + strconv.Itoa(3*i), "item " + strconv.Itoa(3*i+1)}, "")
	}
	m.expectNone()
}

// TestWritesThatAnswerAlikeAreWork: writes return the same answers, and that is
// not a loop.
func TestWritesThatAnswerAlikeAreWork(t *testing.T) {
	m := newMade(t)
	for i := range 60 {
		m.step("write_file", map[string]any{"path": "f" + strconv.Itoa(i), "text": strings.Repeat("x", i)}, "ok", "")
	}
	m.expectNone()
}

func TestALongQuietComputationIsWork(t *testing.T) {
	m := newMade(t, func(p *ckpt.Policy) { p.NoProgressTime = ckpt.Duration(10 * time.Minute); p.NoProgressSteps = 20 })
	m.step("compute", "start", "started", "")
	for i := range 100 {
		m.now = m.now.Add(2 * time.Minute)
		progress := float64(i) / 100
		m.note(m.run.Beat(m.now, &progress))
		if i%5 == 0 {
			m.save(map[string]any{"iteration": i, "sum": 100 + i})
		}
	}
	m.found = slices.DeleteFunc(m.found, func(s sighting) bool { return s.Rule == RuleContextAge })
	m.expectNone()
}

func TestProgressClearsRepetition(t *testing.T) {
	m := newMade(t)
	for i := range 60 {
		m.step("poll", 1, "same", "", func(s *ckpt.Step) { p := float64(i / 2); s.Progress = &p })
	}
	m.expectNone()
	for range 4 {
		m.step("poll", 1, "same", "", func(s *ckpt.Step) { p := 29.0; s.Progress = &p })
	}
	m.expect(RuleRepeat, ckpt.SeverityWarn, 62) // the growth in step 58 resets it
}

func TestIgnoredToolsDoNotCount(t *testing.T) {
	m := newMade(t, func(p *ckpt.Policy) { p.IgnoreTools = []string{"poll"} })
	for range 50 {
		m.step("poll", 1, "same", "")
	}
	m.expectNone()
	for range 3 {
		m.step("search", 1, nil, "refused")
		m.step("poll", 1, "same", "")
	}
	m.expect(RuleErrorStreak, ckpt.SeverityWarn, 54) // nor do they break a streak
}

func TestLatencyRamp(t *testing.T) {
	m := newMade(t, detector(RuleLatencyDrift, ckpt.Detector{Tier: ckpt.TierWarn}))
	took := func(ms int64) func(*ckpt.Step) { return func(s *ckpt.Step) { s.DurationMS = &ms } }
	for i := range 40 {
		m.step("fetch", i, i, "", took(100+int64(i%5)))
	}
	m.expectNone()
	m.step("fetch", "slow once", 1, "", took(60_000))
	m.expectNone() // one slow step means nothing
	for i := range 10 {
		m.step("fetch", -i, -i, "", took(104+8*int64(i)))
	}
	if at := m.first(RuleLatencyDrift, ckpt.SeverityWarn); at < 41 || at > 45 {
		t.Errorf("the ramp was found at step %d: %s", at, m.all())
	}
}

func TestTokenDriftAndTheAgentsBaseline(t *testing.T) {
	tokens := func(n int64) func(*ckpt.Step) { return func(s *ckpt.Step) { s.OutputTokens = &n } }
	m := newMade(t)
	for i := range 20 {
		m.step("think", i, i, "", tokens(200+int64(i%3)))
	}
	base := m.past()
	m = newMade(t)
	m.run = m.watch.Watch(&m.policy, observer.RunPast{StartedAt: start, Baseline: base.Steps})
	for i := range 3 {
		m.step("think", i, -i, "", tokens(800))
	}
	m.expect(RuleTokenDrift, ckpt.SeverityInfo, 1)
	m.expect(RuleTokenDrift, ckpt.SeverityWarn, -1)
}

func TestNoProgress(t *testing.T) {
	m := newMade(t, func(p *ckpt.Policy) { p.NoProgressSteps = 10 })
	for i := range 30 {
		m.step("work", i, i, "", func(s *ckpt.Step) { p := 0.5; s.Progress = &p })
	}
	m.expect(RuleNoProgress, ckpt.SeverityWarn, 10)
	m.expect(RuleNoProgress, ckpt.SeverityCritical, 20)
	m = newMade(t, func(p *ckpt.Policy) { p.NoProgressTime, p.CheckpointInterval = ckpt.Duration(time.Hour), 0 })
	p := 0.2
	m.note(m.run.Beat(start, &p))
	m.note(m.run.Beat(start.Add(59*time.Minute), &p))
	m.expectNone()
	m.note(m.run.Beat(start.Add(61*time.Minute), nil))
	if m.all() != "-1: no_progress warn" {
		t.Error(m.all())
	}
}

func TestProgressReversed(t *testing.T) {
	m := newMade(t)
	for i, p := range []float64{0.1, 0.5, 0.4, 0.6} {
		m.step("work", i, i, "", func(s *ckpt.Step) { s.Progress = &p })
	}
	m.expect(RuleProgressReversed, ckpt.SeverityWarn, 2)
}

func TestSensitivityAndTiers(t *testing.T) {
	for _, test := range []struct {
		name           string
		change         func(*ckpt.Policy)
		warn, critical int
	}{
		{"normal", func(*ckpt.Policy) {}, 3, 4},
		{"low", func(p *ckpt.Policy) { p.Sensitivity = ckpt.SensitivityLow }, 5, 7},
		{"high", func(p *ckpt.Policy) { p.Sensitivity = ckpt.SensitivityHigh }, 2, 3},
		{"off", func(p *ckpt.Policy) { p.Sensitivity = ckpt.SensitivityOff }, -1, -1},
		{"rule off", detector(RuleRepeat, ckpt.Detector{Tier: "off"}), -1, -1},
		{"rule warn", detector(RuleRepeat, ckpt.Detector{Tier: "warn"}), 3, -1},
		{"rule info", detector(RuleRepeat, ckpt.Detector{Tier: "info"}), -1, -1},
		{"thresholds", detector(RuleRepeat, ckpt.Detector{Warn: 5, Critical: 8, CriticalWindow: 30}), 4, 7},
	} {
		t.Run(test.name, func(t *testing.T) {
			m := newMade(t, test.change)
			for range 20 {
				m.step("search", 1, "same", "")
			}
			m.expect(RuleRepeat, ckpt.SeverityWarn, test.warn)
			m.expect(RuleRepeat, ckpt.SeverityCritical, test.critical)
		})
	}
}

// TestGaugesAreInfoByDefault: a gauge reports info unless the policy raises it.
func TestGaugesAreInfoByDefault(t *testing.T) {
	for _, rule := range []string{RuleLatencyDrift, RuleTokenDrift, RuleCheckpointSize} {
		for tier, want := range map[string]ckpt.Severity{"": "info", "info": "info", "warn": "warn", "critical": "critical"} {
			p, wantFar := ckpt.DefaultPolicy(), want
			if tier == "" {
				wantFar = "warn"
			}
			detector(rule, ckpt.Detector{Tier: tier})(&p)
			if got := settingsOf(&p).rules[rule]; got.one != want || got.detector().Tier != string(want) {
				t.Errorf("%s with tier %q is %s and shown as %s, not %s", rule, tier, got.one, got.detector().Tier, want)
			} else if got.farOne != wantFar {
				t.Errorf("%s with tier %q is %s far outside, not %s", rule, tier, got.farOne, wantFar)
			}
		}
	}
}

// TestFarOutside: five calls in a row that need ten times as much as the first ones are a warning; four are not, nor are
// five with a usual one in between, nor calls that took a moment. The policy can set another factor.
func TestFarOutside(t *testing.T) {
	for name, test := range map[string]struct {
		usual  int64
		then   []int64
		change func(*ckpt.Policy)
		at     int
	}{
		"15 times":               {100, []int64{1500, 1500, 1500, 1500, 1500}, nil, 24},
		"four":                   {100, []int64{1500, 1500, 1500, 1500, 200, 200}, nil, -1},
		"a usual one in between": {100, []int64{1500, 1500, 1500, 100, 1500, 1500}, nil, -1},
		"9 times":                {100, []int64{900, 900, 900, 900, 900, 900}, nil, -1},
		"a moment":               {1, []int64{40, 40, 40, 40, 40, 40}, nil, -1},
		"another factor":         {100, []int64{900, 900, 900, 900, 900}, detector(RuleLatencyDrift, ckpt.Detector{Far: 8}), 24},
		"info alone":             {100, []int64{1500, 1500, 1500, 1500, 1500}, detector(RuleLatencyDrift, ckpt.Detector{Tier: ckpt.TierInfo}), -1},
		"high sensitivity":       {100, []int64{900, 900, 900, 900, 900}, func(p *ckpt.Policy) { p.Sensitivity = ckpt.SensitivityHigh }, 24},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMade(t)
			if test.change != nil {
				m = newMade(t, test.change)
			}
			play := func(took int64) {
				m.step("fetch", len(m.prints), len(m.prints), "", func(s *ckpt.Step) { s.DurationMS = &took })
			}
			for range 20 {
				play(test.usual)
			}
			for i, took := range test.then {
				if i == 2 {
					m.restart()
				}
				play(took)
			}
			m.expect(RuleLatencyDrift, ckpt.SeverityWarn, test.at)
		})
	}
	p := ckpt.DefaultPolicy()
	p.Detectors["repeat"] = ckpt.Detector{Far: 3}
	if err := New().Check(&p); err == nil || !strings.Contains(err.Error(), "detectors.repeat.far") {
		t.Errorf("far of a rule without it: %v", err)
	}
}

func detector(rule string, d ckpt.Detector) func(*ckpt.Policy) {
	return func(p *ckpt.Policy) { p.Detectors = map[string]ckpt.Detector{rule: d} }
}

func TestADismissedLoopStartsFromNothing(t *testing.T) {
	m := newMade(t)
	for range 4 {
		m.step("search", 1, "same", "")
	}
	m.dismiss(RuleRepeat)
	m.found = nil
	m.step("search", 1, "same", "")
	m.restart()
	for range 3 {
		m.step("search", 1, "same", "")
	}
	m.expect(RuleRepeat, ckpt.SeverityWarn, 7)
}

// TestTheCheckpointBeforeTheEvidence: a critical finding names the checkpoint
// before its evidence began, and Back returns that checkpoint even before the
// finding.
func TestTheCheckpointBeforeTheEvidence(t *testing.T) {
	m := newMade(t)
	m.save(map[string]any{"n": 1})
	m.step("read", "x", "something else", "")
	for i := range 5 {
		m.step("search", 1, "same", "")
		if back, ok := m.run.Back(); i >= 1 && (!ok || back != 1) || i == 0 && ok {
			t.Errorf("after %d identical steps Back is %d, %v", i+1, back, ok)
		}
		m.save(map[string]any{"n": 2 + i})
	}
	i := slices.IndexFunc(m.found, func(s sighting) bool { return s.Severity == ckpt.SeverityCritical })
	if i < 0 || m.found[i].SinceSeq != 1 {
		t.Fatalf("critical at %d: %+v", i, m.found)
	}
	if got := m.found[i].Evidence.Steps; !slices.Equal(got, []string{"s1", "s2", "s3", "s4", "s5"}) {
		t.Errorf("the evidence names %q", got)
	}
}

// TestTheSameProblemAtOnce: a call that reports a problem and is made again at once, with the same answer, is a warning
// after two steps. An agent that waits, another call, another problem and a program that failed have three.
func TestTheSameProblemAtOnce(t *testing.T) {
	const problem = "Temporary problem, please try again"
	for name, test := range map[string]struct {
		step func(m *made, i int)
		at   int
	}{
		"at once":      {func(m *made, _ int) { m.step("search", "x", problem, "") }, 1},
		"another call": {func(m *made, i int) { m.step("search", i, problem, "") }, 2},
		"another problem": {func(m *made, i int) {
			m.step("search", "x", []string{"rate limit exceeded", "503 unavailable"}[i%2], "")
		}, -1},
		"a failed step": {func(m *made, _ int) { m.step("search", "x", nil, problem) }, 2},
		"after a while": {func(m *made, _ int) {
			m.now = m.now.Add(time.Minute)
			m.step("search", "x", problem, "")
		}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMade(t, only(RuleErrorStreak))
			for i := range 3 {
				test.step(m, i)
			}
			m.expect(RuleErrorStreak, ckpt.SeverityWarn, test.at)
		})
	}
}
