package draw

import (
	"html/template"
	"strconv"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/survey"
)

// The size of a run's lane in a list, in units that are scaled to the width of its
// column.
const (
	laneWidth  = 560.0
	laneHeight = 28.0
)

// scale maps a time to a width on the page.
type scale struct {
	from, to ckpt.Time
	width    float64
}

func (s scale) x(t ckpt.Time) float64 {
	all := s.to.Sub(s.from.Time).Seconds()
	if all <= 0 {
		return 0
	}
	return min(max(t.Sub(s.from.Time).Seconds()/all*s.width, 0), s.width)
}

// Lane draws a run on the axis that all runs of an overview share.
func Lane(o *survey.Overview, r *survey.RunLine) template.HTML {
	x := scale{o.From, o.To, laneWidth}
	s := &svg{}
	failed, steps := int64(0), int64(0)
	for _, b := range r.Bins {
		steps, failed = steps+b.Steps, failed+b.Failed
	}
	s.put(`<svg viewBox="0 0 `, laneWidth, ` `, laneHeight, `" preserveAspectRatio="none" role="img" aria-label="`,
		told(r.Agent+" / "+r.Run), `: `, Plural(len(r.Segments), "segment"), `, `, Plural(int(steps), "step"), `, `, int64(failed), ` failed">`)
	laneSegments(s, x, o, r)
	laneBins(s, o, r)
	s.raw(`</svg>`)
	return s.html()
}

func laneSegments(s *svg, x scale, o *survey.Overview, r *survey.RunLine) {
	for i, seg := range r.Segments {
		if i > 0 && !r.Segments[i-1].To.IsZero() {
			a, b := x.x(r.Segments[i-1].To), x.x(seg.From)
			s.put(`<rect class="gap" x="`, a, `" y="9" width="`, max(0, b-a), `" height="10"/>`)
		}
		to := seg.To
		if to.IsZero() {
			to = o.At
		}
		a, b := x.x(seg.From), x.x(to)
		s.put(`<rect class="att" x="`, a, `" y="8.5" width="`, max(2, b-a), `" height="11" rx="2"/>`)
		if broke(seg.How) {
			s.put(`<path class="dead" d="M`, b-3, ` 10l6 8m0-8-6 8"/>`)
		}
	}
}

// broke reports whether a segment ended without a report from its owner.
func broke(how string) bool {
	return how == string(ckpt.RunInterrupted) || how == string(ckpt.RunTimedOut)
}

func laneBins(s *svg, o *survey.Overview, r *survey.RunLine) {
	const wide = laneWidth / survey.OverviewBins
	most := int64(1)
	for _, b := range r.Bins {
		most = max(most, b.Steps)
	}
	// All steps of a lane are drawn as two shapes, however many steps there are.
	steps, failed := &svg{}, &svg{}
	for _, b := range r.Bins {
		at := float64(b.I) * wide
		if b.Steps > 0 {
			h := 3 + 6*float64(b.Steps)/float64(most)
			steps.put(`M`, at, ` `, 18.5-h, `h`, wide-1.2, `V18.5h-`, wide-1.2, `Z`)
			if f := share(b.Failed, b.Steps, h); f > 0 {
				failed.put(`M`, at, ` `, 18.5-f, `h`, wide-1.2, `V18.5h-`, wide-1.2, `Z`)
			}
		}
	}
	for i, d := range []*svg{steps, failed} {
		if d.b.Len() > 0 {
			s.put(`<path class="`, []string{"st", "st f"}[i], `" d="`, d.b.String(), `"/>`)
		}
	}
	for _, b := range r.Bins {
		at := float64(b.I) * wide
		if b.Operations > 0 {
			s.put(`<g transform="translate(`, at+wide/2, ` 4)"><path class="cp pre" d="M0-3.5L3.5 0 0 3.5-3.5 0Z"/></g>`)
		}
		if b.Findings > 0 {
			s.put(`<g transform="translate(`, at+wide/2, ` 24.5)">`)
			s.triangle(findingClass(b.Worst, b.Open > 0), 3)
			s.raw(`</g>`)
		}
	}
}

// findingClass returns the class with which a finding is drawn.
func findingClass(worst ckpt.Severity, open bool) string {
	switch {
	case !open:
		return "x"
	case worst == ckpt.SeverityCritical:
		return "c"
	}
	return ""
}

// Axis draws the times above the lanes.
func Axis(from, to ckpt.Time) template.HTML {
	s := &svg{}
	s.put(`<svg viewBox="0 0 `, laneWidth, ` 18" aria-hidden="true">`)
	layout := "15:04"
	if to.Sub(from.Time) < 8*time.Minute {
		layout = "15:04:05"
	}
	for i := range 5 {
		x, anchor, text := float64(i)*laneWidth/4, "middle", ""
		at := ckpt.At(from.Add(to.Sub(from.Time) * time.Duration(i) / 4))
		text = at.In(Zone).Format(layout)
		switch i {
		case 0:
			anchor = "start"
		case 4:
			anchor, text = "end", "now"
		}
		s.put(`<text x="`, x, `" y="13" text-anchor="`, anchor, `">`, told(text), `</text>`)
	}
	s.raw(`</svg>`)
	return s.html()
}

// Bar draws a share as a bar.
func Bar(share float64, width int) template.HTML {
	s := &svg{}
	share = min(max(share, 0), 1)
	w := strconv.Itoa(width)
	s.put(`<svg class="bar" width="`, w, `" height="6" viewBox="0 0 `, w, ` 6" role="img" aria-label="`, Percent(share),
		`"><rect class="bar3" width="`, w, `" height="6" rx="3"/><rect class="bar2" width="`, float64(width)*share, `" height="6" rx="3"/></svg>`)
	return s.html()
}
