package drift

import (
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"testing"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/drift/observer"
)

// randomRun is a run of an agent that repeats itself and fails at a given rate.
func randomRun(random *rand.Rand, unruly float64) *observer.RecordedRun {
	r := &observer.RecordedRun{Source: "a", Outcome: "completed", Good: true, StartedAt: start}
	last := 0
	for i := range 15 + random.IntN(40) {
		if random.Float64() > unruly {
			last = random.IntN(1000)
		} else if random.IntN(3) == 0 {
			last = random.IntN(3)
		}
		p := observer.StepPrint{Key: strconv.Itoa(i), Tool: "t" + strconv.Itoa(last%2), Sig: digest(32, []byte(strconv.Itoa(last))), Res: digest(32, []byte("r")), At: start}
		if random.Float64() < unruly*unruly {
			p.Failed, p.Cause = true, digest(16, []byte(strconv.Itoa(random.IntN(3))))
		}
		r.Steps = append(r.Steps, p)
	}
	return r
}

// TestACalibratedWatchWarnsAboveItsFactor: a calibrated watch warns in exactly
// the runs whose score is above the factor.
func TestACalibratedWatchWarnsAboveItsFactor(t *testing.T) {
	w := New().(*watch)
	p := ckpt.DefaultPolicy()
	random := rand.New(rand.NewPCG(1, 2))
	warned := 0
	for n := range 3000 {
		r := randomRun(random, random.Float64())
		factor := 0.5 + 2*random.Float64()
		if n%3 == 0 { // the factor is exactly a score
			factor = max(w.Score(&p, randomRun(random, random.Float64())), 0.5)
		}
		run := newRun(&p, observer.RunPast{StartedAt: start, Calibration: ckpt.Calibration{Factor: factor, Runs: 20, Quiet: 20}})
		warns := false
		for _, step := range r.Steps {
			for _, f := range run.Step(step) {
				warns = warns || f.Severity.Rank() >= ckpt.SeverityWarn.Rank()
			}
		}
		score := w.Score(&p, r)
		if warns {
			warned++
		}
		if warns && score <= factor {
			t.Fatalf("run %d: it warns, with a score of %v and a factor of %v", n, score, factor)
		}
		if !warns && score > factor && score >= 1 {
			t.Fatalf("run %d: it does not warn, with a score of %v and a factor of %v", n, score, factor)
		}
	}
	if warned < 300 || warned > 2700 {
		t.Errorf("%d of 3000 runs were warned: the test is not worth much", warned)
	}
}

var simulated = flag.Int("simulated", 1000, "good runs that TestThePromiseHoldsInSimulation makes for each number of them; make fuzz makes 20,000")

// TestThePromiseHoldsInSimulation: of many agents, each calibrated on its own
// good runs, the share whose next good run gets a warning is not larger than
// requested.
func TestThePromiseHoldsInSimulation(t *testing.T) {
	w := New().(*watch)
	for _, runs := range []int{20, 50, 100, 500} {
		p := ckpt.DefaultPolicy()
		p.FalseAlarms, p.FalseAlarmsLaxest = 0.05, 100
		random := rand.New(rand.NewPCG(uint64(runs), 3))
		agents := *simulated / runs
		next, above := 0, 0
		for range max(agents, 5) {
			unruly := 0.2 + 0.6*random.Float64()
			scores := make([]float64, runs)
			for i := range scores {
				scores[i] = w.Score(&p, randomRun(random, unruly))
			}
			c := w.Calibrate(&p, scores)
			for range 20 {
				next++
				above += b2i(w.Score(&p, randomRun(random, unruly)) > c.Factor)
			}
		}
		low, high := wilson(above, next)
		t.Logf("%d good runs: %d of %d new ones were warned: %.1f %% (%.1f to %.1f)", runs, above, next, 100*float64(above)/float64(next), 100*low, 100*high)
		if low > 0.05 {
			t.Errorf("%d good runs: %.1f to %.1f %% of new ones were warned, 5 %% were promised", runs, 100*low, 100*high)
		}
	}
}

func TestCalibrateNeedsEnoughRunsAndKeepsItsFloor(t *testing.T) {
	w := New()
	p := ckpt.DefaultPolicy()
	for share, needs := range map[ckpt.Percent]int{0.05: 19, 0.01: 99, 0.2: 4, 0.5: 1} {
		p.FalseAlarms = share
		scores := make([]float64, needs)
		for i := range scores {
			scores[i] = float64(i+1) / float64(needs)
		}
		if c := w.Calibrate(&p, scores[1:]); c.Needs != needs || c.Factor != 0 {
			t.Errorf("%v with one run too few: %+v", share, c)
		}
		if c := w.Calibrate(&p, scores); c.Factor != 1 || c.Quiet != needs {
			t.Errorf("%v: %+v", share, c)
		}
	}
	p.FalseAlarms, p.FalseAlarmsLaxest = 0.2, 1.5
	if c := w.Calibrate(&p, []float64{9, 9, 9, 1}); !c.Capped || c.Factor != 1.5 || c.Quiet != 1 {
		t.Errorf("beyond the floor: %+v", c)
	}
}

func TestWilson(t *testing.T) {
	for _, test := range []struct {
		seen, among int
		low, high   float64
	}{{0, 10, 0, 0.2775}, {10, 10, 0.7225, 1}, {7, 185, 0.0184, 0.0760}, {0, 0, 0, 1}, {1, 2, 0.0945, 0.9055}} {
		low, high := wilson(test.seen, test.among)
		if math.Abs(low-test.low) > 5e-4 || math.Abs(high-test.high) > 5e-4 {
			t.Error(fmt.Sprint(test, low, high))
		}
	}
}
