package draw

import (
	"html/template"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

// mostMarks is how many findings a chart draws.
const mostMarks = 600

// Findings draws findings, with one lane for each rule.
func Findings(rules []string, by map[string][]*ckpt.Finding, from, to ckpt.Time) template.HTML {
	const width, left = 1180.0, 130.0
	x := scale{from, to, width - left - 8}
	s := &svg{}
	height := float64(36 + 26*max(1, len(rules)))
	s.put(`<svg viewBox="0 0 `, width, ` `, height, `" role="img" aria-label="Findings by rule over time">`)
	drawn := 0
	for i, rule := range rules {
		y := 22 + i*26
		s.put(`<text class="lab" x="0" y="`, y+4, `">`, told(FirstLine(rule, 20)), `</text><path class="gl" d="M`, left, ` `, y+13, `H`, width, `"/>`)
		for _, f := range by[rule] {
			if drawn++; drawn > mostMarks {
				break
			}
			s.put(`<g transform="translate(`, left+x.x(f.At), ` `, y, `)">`)
			s.triangle(findingClass(f.Severity, f.Closed == ""), 5)
			s.put(`<title>`, told(f.Agent+" / "+f.Run+": "+FirstLine(f.Message, 160)), `</title></g>`)
		}
	}
	layout := "15:04"
	switch length := to.Sub(from.Time); {
	case length > 24*time.Hour:
		layout = "2 Jan"
	case length < 8*time.Minute:
		layout = "15:04:05"
	}
	for i := range 5 {
		at, anchor := ckpt.At(from.Add(to.Sub(from.Time)*time.Duration(i)/4)), "middle"
		text := at.In(Zone).Format(layout)
		switch i {
		case 0:
			anchor = "start"
		case 4:
			anchor, text = "end", "now"
		}
		s.put(`<text x="`, left+float64(i)*(width-left-8)/4, `" y="`, height-6, `" text-anchor="`, anchor, `">`, told(text), `</text>`)
	}
	s.raw(`</svg>`)
	return s.html()
}
