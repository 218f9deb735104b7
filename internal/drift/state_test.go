package drift

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/drift/observer"
)

// pointers returns the findings of a rule: the number of the checkpoint and the
// pointer.
func (m *made) pointers(rule string) []string {
	var list []string
	for _, f := range m.found {
		if f.Rule == rule {
			list = append(list, f.Evidence.Checkpoints[len(f.Evidence.Checkpoints)-1]+" "+f.Evidence.Pointer)
		}
	}
	return list
}

func (m *made) expectPointers(rule string, want ...string) {
	m.t.Helper()
	if got := m.pointers(rule); !slices.Equal(got, want) {
		m.t.Errorf("%s was found at %q, not %q; all: %s", rule, got, want, m.all())
	}
}

func form(change map[string]any) map[string]any {
	state := map[string]any{"goal": "count sheep", "plan": []int{1, 2}, "notes": map[string]any{"a/b": 1}, "n": 5, "x~y/z": true}
	maps.Copy(state, change)
	for key, value := range change {
		if value == "gone" {
			delete(state, key)
		}
	}
	return state
}

func TestLostKeys(t *testing.T) {
	m := newMade(t)
	for range 3 {
		m.save(form(nil))
	}
	m.expectNone()
	m.save(form(map[string]any{"x~y/z": "gone", "plan": "gone"}))
	m.expectPointers(RuleLostKeys, "c4 /plan")
	if f := m.found[0]; f.SinceSeq != 3 || !strings.Contains(f.Message, `"x~y/z"`) || !strings.Contains(f.Message, "lost 2 top-level keys") {
		t.Errorf("%+v", f)
	}
	m.save(form(map[string]any{"x~y/z": "gone", "plan": "gone"}))
	m.save(form(nil))
	m.save(form(map[string]any{"x~y/z": "gone"}))
	m.expectPointers(RuleLostKeys, "c4 /plan") // it was not in the last three
}

func TestAKeyThatComesAndGoesIsNotLost(t *testing.T) {
	m := newMade(t)
	for i := range 20 {
		m.save(form(map[string]any{[]string{"a", "b"}[i%2]: "tool"}))
	}
	m.expectNone()
}

func TestAStateThatIsNoObjectAnyMoreHasLostItsKeys(t *testing.T) {
	m := newMade(t)
	for range 3 {
		m.save(form(nil))
	}
	m.save([]any{form(nil)})
	m.expectPointers(RuleLostKeys, "c4 /goal")
}

func TestTypeChanged(t *testing.T) {
	m := newMade(t)
	m.save(form(map[string]any{"result": nil}))
	m.save(form(map[string]any{"result": map[string]any{"a": 1}}))
	m.save(form(map[string]any{"result": nil}))
	m.expectNone() // null counts as no type
	m.save(form(map[string]any{"result": "text", "plan": map[string]any{}}))
	m.expectPointers(RuleTypeChanged, "c4 /plan", "c4 /result")
	m.found = nil
	m.save(form(map[string]any{"result": "text", "plan": map[string]any{}}))
	m.expectNone() // reported only once
	m.save(form(map[string]any{"x~y/z": 1, "result": "text", "plan": map[string]any{}}))
	m.expectPointers(RuleTypeChanged, "c6 /x~0y~1z")
}

func TestCounterReversed(t *testing.T) {
	m := newMade(t)
	loop := func(n int, share float64) map[string]any {
		return form(map[string]any{"loop": map[string]any{"iteration": n, "share": share}, "list": []int{n}})
	}
	for i := range 5 {
		m.save(loop(i, 0.9-float64(i)/10))
	}
	m.expectNone()
	m.save(loop(2, 0.9))
	m.expectPointers(RuleCounterReversed, "c6 /loop/iteration")
	if f := m.found[0]; !strings.Contains(f.Message, "to 4, and fell to 2") {
		t.Errorf("%+v", f)
	}
	m = newMade(t)
	for i := range 40 {
		m.save(loop([]int{1, 2, 3, 0}[i%4], 0)) // it decreases all the time
	}
	m.expectNone()
	m = newMade(t)
	for _, n := range []int{1, 2, 2, 3, 4, 0} { // saved twice in one iteration
		m.save(loop(n, 0))
	}
	m.expectPointers(RuleCounterReversed, "c6 /loop/iteration")
}

func TestCheckpointSize(t *testing.T) {
	sized := func(n int) any { return map[string]any{"log": strings.Repeat("x", n)} }
	m := newMade(t)
	for i := range 10 {
		m.save(sized(1000 + 50*i))
	}
	m.expectNone()
	m.save(sized(500))
	m.expectPointers(RuleCheckpointSize, "c11 ")
	m.found = nil
	for range 5 {
		m.save(sized(500))
	}
	m.expectNone()
	m.save(sized(20_000))
	m.expectPointers(RuleCheckpointSize, "c17 ")
}

// TestACompactionIsNoLoss: a conversation that was compacted has lost nothing.
func TestACompactionIsNoLoss(t *testing.T) {
	talk := func(n int) []any {
		list := []any{map[string]any{"role": "system", "content": "You count sheep."}}
		for i := range n {
			list = append(list, map[string]any{"role": "user", "content": strings.Repeat("baa ", 50) + fmt.Sprint(i)})
		}
		return list
	}
	for name, state := range map[string]func(n int) any{
		"at the top":   func(n int) any { return map[string]any{"goal": "count", "messages": talk(n)} },
		"deeper":       func(n int) any { return map[string]any{"values": map[string]any{"messages": talk(n)}, "step": n} },
		"nothing else": func(n int) any { return talk(n) },
	} {
		m := newMade(t)
		for i := range 6 {
			m.save(state(40 + i))
		}
		m.save(state(3))
		if len(m.pointers(RuleCheckpointSize)) > 0 {
			t.Errorf("%s: %s", name, m.all())
		}
	}
	lost := newMade(t) // a part of the conversation is left, but the rest is lost
	notes := strings.Repeat("x", 20_000)
	lost.save(map[string]any{"notes": notes, "messages": talk(40)})
	lost.save(map[string]any{"notes": "", "messages": talk(3)})
	lost.expectPointers(RuleCheckpointSize, "c2 ")
	empty := newMade(t)
	empty.save(map[string]any{"messages": talk(40)})
	empty.save(map[string]any{"messages": []any{}})
	empty.expectPointers(RuleCheckpointSize, "c2 ")
}

func TestGoalChanged(t *testing.T) {
	m := newMade(t)
	for _, declared := range []struct {
		goal    string
		updated bool
		found   int
	}{
		{"count sheep", false, 0}, {"count sheep", false, 0}, {"explore Antarctica", false, 1}, {"explore Antarctica", false, 0},
		{"count goats", false, 1}, {"count goats and sheep", true, 0}, {"count goats and sheep", false, 0}, {"count sheep", false, 1},
	} {
		if found := m.run.Goal(m.now, declared.goal, declared.updated); len(found) != declared.found {
			t.Errorf("%q, updated %v: %+v", declared.goal, declared.updated, found)
		}
	}
}

func TestBudget(t *testing.T) {
	m := newMade(t, func(p *ckpt.Policy) {
		p.Budget = ckpt.Budget{Steps: 10, Tokens: 1000, CostUSD: 2, WallTime: ckpt.Duration(time.Hour)}
		p.CheckpointInterval = 0
	})
	in, out, cost := int64(30), int64(20), 0.05
	for i := range 12 {
		m.step("think", i, i, "", func(s *ckpt.Step) { s.InputTokens, s.OutputTokens, s.CostUSD = &in, &out, &cost })
	}
	if got, want := m.all(), "5: budget info, 8: budget warn, 9: budget critical, 11: budget info"; got != want {
		t.Errorf("%s, not %s", got, want) // the last one is 600 of 1000 tokens
	}
	m.found = nil
	m.note(m.run.Beat(start.Add(30*time.Minute), nil))
	m.note(m.run.Beat(start.Add(36*time.Minute), nil))
	m.note(m.run.Beat(start.Add(61*time.Minute), nil))
	if got, want := m.all(), "11: budget info, 11: budget critical"; got != want {
		t.Errorf("of the time: %s, not %s", got, want)
	}
	m.run.Forget(RuleBudget)
	m.found = nil
	m.step("think", 99, 99, "")
	m.expectNone()
}

func TestStaleness(t *testing.T) {
	m := newMade(t)
	beat := func(minutes int) { m.note(m.run.Beat(start.Add(time.Duration(minutes)*time.Minute), nil)) }
	beat(30)
	m.expectNone()
	beat(31)
	beat(45)
	beat(59)
	if got := m.all(); got != "-1: stale_checkpoint warn" {
		t.Error(got)
	}
	beat(61)
	m.now = start.Add(62 * time.Minute)
	m.save(map[string]any{"n": 1})
	m.found = nil
	beat(90)
	m.expectNone()
	beat(121)
	if got := m.all(); got != "-1: stale_checkpoint warn, -1: context_age info" {
		t.Error(got)
	}
	r := m.run.State(observer.StatePrint{ID: "r", Seq: 9, Kind: ckpt.KindRecovery, At: start.Add(130 * time.Minute)})
	if m.found = nil; len(r) > 0 {
		t.Errorf("%+v", r)
	}
	beat(240)
	if strings.Contains(m.all(), RuleContextAge) {
		t.Error(m.all())
	}
}

func TestUnparsableResult(t *testing.T) {
	m := newMade(t)
	m.step("search", 1, `{"results": [{"text": "a"}}`, "")
	m.expect(RuleUnparsable, ckpt.SeverityWarn, 0)
}

func TestStatePrintIsBounded(t *testing.T) {
	many := map[string]any{}
	for i := range 2000 {
		many[fmt.Sprintf("k%04d", i)] = i
	}
	var p observer.StatePrint
	printState(&p, asJSON(t, many), nil, ckpt.ContentTypeJSON)
	if p.Keys != nil || p.Counters != nil {
		t.Error("an object of 2000 keys is data, not a form")
	}
	printState(&p, asJSON(t, map[string]any{"a": many}), nil, ckpt.ContentTypeJSON)
	if len(p.Counters) != maxCounters {
		t.Errorf("%d counters are kept", len(p.Counters))
	}
	deep := any(1)
	for range 500 {
		deep = map[string]any{"d": deep}
	}
	p = observer.StatePrint{}
	printState(&p, asJSON(t, deep), nil, ckpt.ContentTypeJSON)
	if len(p.Counters) != 0 || p.Keys["d"] != "object" {
		t.Errorf("%+v", p)
	}
	p = observer.StatePrint{}
	printState(&p, asJSON(t, map[string]any{"n": 3, "f": 1.5, "neg": -1, "big": json.RawMessage("1e300"), "s": "7", "in": map[string]any{"m/k": 4}}), nil, ckpt.ContentTypeJSON)
	if want := map[string]float64{"/n": 3, "/in/m~1k": 4}; !maps.Equal(p.Counters, want) {
		t.Errorf("counters are %v, not %v", p.Counters, want)
	}
	p = observer.StatePrint{}
	printState(&p, []byte("\x00\x01"), nil, "application/octet-stream")
	if p.Keys != nil || p.Size != 2 {
		t.Errorf("%+v", p)
	}
}

// TestPastStatesAreBounded: no policy makes a run keep more than a thousand states in memory.
func TestPastStatesAreBounded(t *testing.T) {
	p := ckpt.DefaultPolicy()
	p.Detectors = map[string]ckpt.Detector{RuleLostKeys: {Warn: 1e9}, RuleCounterReversed: {Warn: 1e9}}
	r := newRun(&p, observer.RunPast{})
	for i := range 3000 {
		r.State(observer.StatePrint{Seq: int64(i + 1), Kind: ckpt.KindRoutine})
	}
	if n := len(r.states.newest); n > maxDepth {
		t.Errorf("it keeps %d states", n)
	}
}

// TestATypeThatWasMendedStaysRight: after a restart with only some of the states, a type that was wrong and was mended is
// not taken for the right one.
func TestATypeThatWasMendedStaysRight(t *testing.T) {
	m := newMade(t, only(RuleTypeChanged))
	for _, state := range []string{`{"mode":"fast"}`, `{"mode":7}`, `{"mode":"fast"}`} {
		m.save(json.RawMessage(state))
	}
	m.states, m.found = m.states[1:], nil // retention removed the first one
	m.restart()
	m.save(json.RawMessage(`{"mode":"slow"}`))
	m.expectNone()
	m.save(json.RawMessage(`{"mode":8}`))
	if len(m.found) != 1 || m.found[0].Rule != RuleTypeChanged || m.found[0].Evidence.Threshold != "string" {
		t.Fatalf("a wrong type after the restart: %s", m.all())
	}
	m.save(json.RawMessage(`{"mode":"fast"}`))
	if len(m.found) != 1 {
		t.Errorf("the mend is scolded: %s", m.all())
	}
}
