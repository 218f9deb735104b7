package figures

import (
	"math"
	"testing"
)

func TestSampleOfKnownTimes(t *testing.T) {
	var micros []int64
	for i := range int64(200) {
		micros = append(micros, (200-i)*1000) // 1 to 200 ms, not in order
	}
	if s := NewSample(micros, 0.5); s != (Sample{Rate: 400, P50: 100, P99: 198}) {
		t.Errorf("%+v", s)
	}
	if micros[0] != 200_000 {
		t.Error("the caller's times were sorted")
	}
	if s := NewSample([]int64{1500}, 1); s != (Sample{Rate: 1, P50: 1.5, P99: 1.5}) {
		t.Errorf("of one: %+v", s)
	}
	if s := NewSample(nil, 2); s != (Sample{}) {
		t.Errorf("of none: %+v", s)
	}
}

func TestMedian(t *testing.T) {
	for _, c := range []struct {
		want   float64
		values []float64
	}{{3, []float64{9, 1, 3}}, {2.5, []float64{4, 1, 2, 3}}, {7, []float64{7}}} {
		if got := Median(c.values); got != c.want {
			t.Errorf("of %v it is %v", c.values, got)
		}
	}
	if !math.IsNaN(Median(nil)) {
		t.Error("of nothing it is a number")
	}
}

func at(rates ...float64) Series {
	var s Series
	for _, rate := range rates {
		if rate < 0 {
			s = append(s, nil)
		} else {
			s = append(s, &Sample{Rate: rate, P50: 1000 / rate})
		}
	}
	return s
}

func TestRatioIsTakenInsideARound(t *testing.T) {
	// The second round was slow for both, so the ratio of separate medians
	// would be 1.
	got, ok := Ratio(at(300, 30, 100), at(100, 10, 100))
	if !ok || got != 3 {
		t.Errorf("%v %v", got, ok)
	}
	if got, ok := Ratio(at(300, -1, 100), at(-1, 10, 50)); !ok || got != 2 {
		t.Errorf("with rounds that only one has: %v %v", got, ok)
	}
	for _, theirs := range []Series{at(-1, 0), nil} {
		if _, ok := Ratio(at(1, 1), theirs); ok {
			t.Errorf("there is a ratio to %v", theirs)
		}
	}
}

func TestSeriesLeavesOutRoundsThatAreMissing(t *testing.T) {
	m, ok := at(10, -1, 20, 40).Median()
	if !ok || m.Rate != 20 || m.P50 != 50 {
		t.Errorf("%+v %v", m, ok)
	}
	if _, ok := at(-1).Median(); ok {
		t.Error("nothing has a median")
	}
}

func TestBarsAreThoseOfTheIssue(t *testing.T) {
	bars := map[Bar]bool{}
	for _, b := range Bars() {
		if bars[b] {
			t.Errorf("%+v is there twice", b)
		}
		bars[b] = true
	}
	if len(bars) != 6*3+2*3+2*3*2+4 {
		t.Errorf("there are %d", len(bars))
	}
	for _, b := range []Bar{
		{"postgres", Cell{2048, 0, 64}, false, 2.5},
		{"append", Cell{2048, 0, 64}, false, 0.28},
		{"langgraph", Cell{65536, 0, 1}, false, 1},
		{"langgraph", Cell{65536, 3072, 1}, false, 1.2},
		{"redis", Cell{524288, 1638, 16}, false, 4},
		{"file", Cell{524288, 1638, 0}, true, 100},
	} {
		if !bars[b] {
			t.Errorf("%+v is missing", b)
		}
	}
}

func TestJudge(t *testing.T) {
	bars := []Bar{{Peer: "met", AtLeast: 2}, {Peer: "not met", AtLeast: 2}, {Peer: "away", AtLeast: 2}}
	ratios := map[string]float64{"met": 2, "not met": 1.99}
	all := Judge(bars, func(b Bar) (float64, bool) {
		r, ok := ratios[b.Peer]
		return r, ok
	})
	for i, want := range []string{"PASS", "miss", "not measured"} {
		if got := all[i].Text(); got != want {
			t.Errorf("%s: %s", all[i].Peer, got)
		}
	}
	if all[0].Ratio != 2 || all[1].Pass || all[2].Pass {
		t.Errorf("%+v", all)
	}
}
