package draw

import (
	"math"
	"testing"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/survey"
)

// start is the time when the run of the test begins.
var start = ckpt.At(time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC))

func later(minutes float64) ckpt.Time {
	return ckpt.At(start.Add(time.Duration(minutes * float64(time.Minute))))
}

// TestFolds checks the geometry of gaps.
func TestFolds(t *testing.T) {
	l := NewTimeline(start, later(116), []survey.Segment{
		{Attempt: 1, From: start, To: later(5)}, {Attempt: 2, From: later(11), To: later(13)}, {Attempt: 3, From: later(112), To: later(116)},
	})
	if len(l.gaps) != 2 {
		t.Fatalf("%d gaps are folded, want both", len(l.gaps))
	}
	if w := l.At(later(112)) - l.At(later(13)); math.Abs(w-foldedWidth) > 1e-9 {
		t.Errorf("99 minutes in which nobody ran it take %g of the width", w)
	}
	if w := l.At(later(5)) - l.At(start); w < .3 {
		t.Errorf("five of eleven minutes of work take %g of the width", w)
	}
	last := -1.0
	for m := -3.0; m <= 120; m += .25 {
		x := l.At(later(m))
		if x < last || x < 0 || x > 1 {
			t.Fatalf("minute %g lies at %g after %g", m, x, last)
		}
		if last = x; m >= 0 && m <= 116 {
			if back := l.Back(x); math.Abs(back.Sub(later(m).Time).Seconds()) > 1 {
				t.Errorf("minute %g comes back as %s", m, back)
			}
		}
	}
	many := make([]survey.Segment, 0, 60)
	for i := range 60 {
		many = append(many, survey.Segment{Attempt: int64(i + 1), From: later(float64(i * 100)), To: later(float64(i*100 + 1))})
	}
	l = NewTimeline(start, later(6000), many)
	if all := l.fold * float64(len(l.gaps)); all > mostFolded+1e-9 {
		t.Errorf("60 folds take %g of the width", all)
	}
	if ticks, _ := l.ticks(); len(ticks) > 60 {
		t.Errorf("there are %d ticks", len(ticks))
	}
}
