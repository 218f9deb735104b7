package drift

import (
	"context"
	"runtime"
	"strconv"
	"testing"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/drift/observer"
)

// prints returns n prints of a run that loops, fails, polls and works in turns.
func prints(n int) []observer.StepPrint {
	w, p := New(), ckpt.DefaultPolicy()
	list := make([]observer.StepPrint, n)
	for i := range list {
		took := int64(100 + i%17)
		s := ckpt.Step{
			Key: "s" + strconv.Itoa(i), Name: "tool" + strconv.Itoa(i%5), Args: ckpt.JSON(strconv.Itoa(i % 50)),
			Result: ckpt.JSON(strconv.Quote("result " + strconv.Itoa(i*i))), Status: ckpt.StepSucceeded, EndedAt: ckpt.At(start.Add(time.Duration(i) * time.Second)),
		}
		s.DurationMS = &took
		switch {
		case i%100 < 20:
			s.Args, s.Result = ckpt.JSON("1"), ckpt.JSON(`"the same"`)
		case i%100 < 40:
			s.Status, s.Error = ckpt.StepFailed, ckpt.Ref("failure "+string(rune('a'+i%7)))
		}
		list[i], _ = w.Step(context.Background(), &p, observer.RuleRun{}, &s)
	}
	return list
}

// BenchmarkStep measures the cost of a step in the writer, with the detectors
// at their default windows of up to 20.
func BenchmarkStep(b *testing.B) {
	policy := ckpt.DefaultPolicy()
	steps := prints(10_000)
	r := New().Watch(&policy, observer.RunPast{StartedAt: start})
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		r.Step(steps[i%len(steps)])
	}
}

// BenchmarkStepWide is the same with the largest windows that a policy may set.
func BenchmarkStepWide(b *testing.B) {
	policy := ckpt.DefaultPolicy()
	policy.Detectors = map[string]ckpt.Detector{
		RuleRepeat: {Critical: 200, CriticalWindow: 1000}, RuleStale: {Critical: 200, CriticalWindow: 1000}, RuleErrorRate: {Critical: 200, CriticalWindow: 1000},
		RuleSameError: {Critical: 200, CriticalWindow: 1000}, RuleErrorStreak: {Critical: 200}, RuleCycle: {Critical: 200},
	}
	steps := prints(10_000)
	r := New().Watch(&policy, observer.RunPast{StartedAt: start, Steps: steps})
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		r.Step(steps[i%len(steps)])
		r.Back()
	}
}

// BenchmarkBack measures what the store requests after a step.
func BenchmarkBack(b *testing.B) {
	policy := ckpt.DefaultPolicy()
	r := New().Watch(&policy, observer.RunPast{StartedAt: start, Steps: prints(1000)})
	b.ReportAllocs()
	for b.Loop() {
		r.Back()
	}
}

// BenchmarkPrint measures the cost of a step outside the writer, with a result
// of 1 kB.
func BenchmarkPrint(b *testing.B) {
	w, policy := New(), ckpt.DefaultPolicy()
	text := ""
	for i := range 25 {
		text += "2026-11-21T10:00:00Z line " + strconv.Itoa(i) + " took 12ms"
	}
	s := ckpt.Step{Key: "k", Name: "bash", Args: ckpt.JSON(`{"command":"make test"}`), Result: asJSON(b, text), Status: ckpt.StepSucceeded}
	b.SetBytes(int64(len(s.Result)))
	b.ReportAllocs()
	for b.Loop() {
		_, _ = w.Step(context.Background(), &policy, observer.RuleRun{}, &s)
	}
}

// BenchmarkWatch measures the cost of a restart for a run with the longest
// past.
func BenchmarkWatch(b *testing.B) {
	policy := ckpt.DefaultPolicy()
	past := observer.RunPast{StartedAt: start, Steps: prints(observer.MaxPastSteps), TotalSteps: observer.MaxPastSteps}
	w := New()
	b.ReportAllocs()
	for b.Loop() {
		w.Watch(&policy, past)
	}
}

// TestManyStepsKeepMemoryFlat: a run of many steps needs no more memory than a
// run with an eighth of them.
func TestManyStepsKeepMemoryFlat(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes seconds")
	}
	policy := ckpt.DefaultPolicy()
	r := New().Watch(&policy, observer.RunPast{StartedAt: start})
	took, print := int64(5), observer.StepPrint{}
	step := func(i int) {
		print = observer.StepPrint{
			Key: "k" + strconv.Itoa(i), Tool: "tool" + strconv.Itoa(i%1000), Sig: digest(32, []byte(strconv.Itoa(i))), Res: digest(32, []byte(strconv.Itoa(i/3))),
			Failed: i%3 == 0, At: start.Add(time.Duration(i) * time.Second),
		}
		print.DurationMS = &took
		r.Step(print)
	}
	var before uint64
	for i := range 400_000 {
		if i == 50_000 {
			before = heap()
		}
		step(i)
	}
	if now := heap(); now > before+1<<20 {
		t.Errorf("the heap grew from %d to %d bytes between 50,000 and 400,000 steps", before, now)
	}
	runtime.KeepAlive(r)
}

func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// TestAStepAllocatesLittle: a step that finds nothing allocates nothing, and
// few steps find something. A print that moves to the heap at every step would
// fail this test.
func TestAStepAllocatesLittle(t *testing.T) {
	policy := ckpt.DefaultPolicy()
	steps := prints(10_000)
	r := New().Watch(&policy, observer.RunPast{StartedAt: start, Steps: steps[:5000]})
	i := 5000
	if n := testing.AllocsPerRun(4000, func() { r.Step(steps[i%len(steps)]); i++ }); n >= 1 {
		t.Errorf("a step makes %.1f allocations on average", n)
	}
}
