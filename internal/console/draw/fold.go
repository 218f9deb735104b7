package draw

import (
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/survey"
)

// gap is a time in which no process owned the run.
type gap struct{ from, to ckpt.Time }

// foldedWidth is the share of the axis for a folded gap. All folded gaps together take at
// most a third.
const (
	foldedWidth = .045
	mostFolded  = .34
)

// Timeline maps moments to shares of the axis of a recorder. Gaps are folded: otherwise
// eleven minutes of work in two hours would have a tenth of the width.
type Timeline struct {
	from, to ckpt.Time
	gaps     []gap
	fold     float64 // share of the axis for one gap
	per      float64 // share of the axis for one second outside of the gaps
}

// NewTimeline folds the gaps between segments that would otherwise take too much width.
func NewTimeline(from, to ckpt.Time, segments []survey.Segment) *Timeline {
	l := &Timeline{from: from, to: to}
	if !to.After(from.Time) {
		l.to = ckpt.At(from.Add(time.Second))
	}
	all := seconds(l.from, l.to)
	worked := all
	var candidates []gap
	for i := 1; i < len(segments); i++ {
		g := gap{segments[i-1].To, segments[i].From}
		if g.from.IsZero() {
			continue
		}
		if g.from.Before(l.from.Time) {
			g.from = l.from
		}
		if g.to.After(l.to.Time) {
			g.to = l.to
		}
		if g.to.After(g.from.Time) {
			candidates, worked = append(candidates, g), worked-seconds(g.from, g.to)
		}
	}
	for _, g := range candidates {
		// A short gap is not folded: folded, it would look longer than it was.
		if s := seconds(g.from, g.to); s/all > foldedWidth/2 && s > worked*.03 {
			l.gaps = append(l.gaps, g)
		}
	}
	folded := 0.0
	for _, g := range l.gaps {
		folded += seconds(g.from, g.to)
	}
	if n := float64(len(l.gaps)); n > 0 {
		l.fold = min(foldedWidth, mostFolded/n)
	}
	if rest := all - folded; rest > 0 {
		l.per = (1 - l.fold*float64(len(l.gaps))) / rest
	}
	return l
}

func seconds(a, b ckpt.Time) float64 { return b.Sub(a.Time).Seconds() }

// At returns the position of a moment: 0 at the beginning, 1 at the end.
func (l *Timeline) At(t ckpt.Time) float64 {
	x, from := 0.0, l.from
	for _, g := range l.gaps {
		if !t.After(g.from.Time) {
			break
		}
		x += seconds(from, g.from) * l.per
		if t.Before(g.to.Time) {
			return clamp(x + l.fold*seconds(g.from, t)/seconds(g.from, g.to))
		}
		x, from = x+l.fold, g.to
	}
	return clamp(x + seconds(from, t)*l.per)
}

func clamp(x float64) float64 { return min(max(x, 0), 1) }

// Ends returns the first and the last moment.
func (l *Timeline) Ends() (from, to ckpt.Time) { return l.from, l.to }

// Points returns the shares of the axis between which time passes evenly, each with its
// moment in milliseconds since 1970. The script interpolates.
func (l *Timeline) Points() [][2]float64 {
	points := [][2]float64{{0, float64(l.from.UnixMilli())}}
	for _, g := range l.gaps {
		points = append(points, [2]float64{l.At(g.from), float64(g.from.UnixMilli())}, [2]float64{l.At(g.to), float64(g.to.UnixMilli())})
	}
	return append(points, [2]float64{1, float64(l.to.UnixMilli())})
}

// Back returns the moment at a share of the axis. It limits the share to 0 to 1.
func (l *Timeline) Back(x float64) ckpt.Time {
	x = clamp(x)
	at, from := 0.0, l.from
	for _, g := range l.gaps {
		if w := seconds(from, g.from) * l.per; x <= at+w {
			break
		} else {
			at += w
		}
		if x < at+l.fold {
			return ckpt.At(g.from.Add(time.Duration((x - at) / l.fold * float64(g.to.Sub(g.from.Time)))))
		}
		at, from = at+l.fold, g.to
	}
	if l.per == 0 {
		return from
	}
	return ckpt.At(from.Add(time.Duration((x - at) / l.per * float64(time.Second))))
}

// inGap reports whether a position is in a folded gap, or so near that a label would
// overlap the gap.
func (l *Timeline) inGap(x float64) bool {
	for _, g := range l.gaps {
		if x > l.At(g.from)-.012 && x < l.At(g.to)+.012 {
			return true
		}
	}
	return false
}

// ticks returns round times at distances that leave room for their labels.
func (l *Timeline) ticks() (list []ckpt.Time, layout string) {
	steps := []time.Duration{
		time.Second, 2 * time.Second, 5 * time.Second, 10 * time.Second, 30 * time.Second, time.Minute, 2 * time.Minute, 5 * time.Minute,
		10 * time.Minute, 30 * time.Minute, time.Hour, 2 * time.Hour, 6 * time.Hour, 12 * time.Hour, 24 * time.Hour,
		7 * 24 * time.Hour, 30 * 24 * time.Hour,
	}
	step := steps[len(steps)-1]
	for _, s := range steps {
		if s.Seconds()*l.per >= .062 {
			step = s
			break
		}
	}
	layout = "15:04"
	if step < time.Minute {
		layout = "15:04:05"
	} else if step >= 24*time.Hour {
		layout = "2 Jan"
	}
	// The first moments of each time between gaps.
	from := l.from
	for i := 0; i <= len(l.gaps); i++ {
		to := l.to
		if i < len(l.gaps) {
			to = l.gaps[i].from
		}
		_, offset := from.In(Zone).Zone()
		local := time.Duration(offset) * time.Second
		t := from.Add(local).Truncate(step).Add(step).Add(-local)
		for ; t.Before(to.Time) && len(list) < 60; t = t.Add(step) {
			if x := l.At(ckpt.At(t)); !l.inGap(x) && x < .985 {
				list = append(list, ckpt.At(t))
			}
		}
		if i < len(l.gaps) {
			from = l.gaps[i].to
		}
	}
	return list, layout
}
