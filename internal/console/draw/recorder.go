package draw

import (
	"crypto/sha256"
	"encoding/hex"
	"html/template"
	"net/url"
	"strconv"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/survey"
)

// The geometry of the recorder, in units of its viewBox.
const (
	recWidth  = 1200.0
	recLeft   = 92.0 // where the axis begins; the names of the lanes are to its left
	recPlot   = recWidth - recLeft
	recHeight = 300.0
	recBottom = 262.0
)

// recLanes are the lanes and their positions.
var recLanes = []struct {
	name string
	y    int
}{
	{"Segments", 34}, {"Steps", 66}, {"Operations", 100}, {"Routine", 132}, {"Before risk", 158}, {"Recovery", 184},
	{"Findings", 212}, {"State size", 246},
}

// kindLane returns the position of the lane for checkpoints of a kind.
func kindLane(k ckpt.Kind) int {
	switch k {
	case ckpt.KindRoutine:
		return 132
	case ckpt.KindPreOperation:
		return 158
	}
	return 184
}

// recorder draws one flight recorder.
type recorder struct {
	svg
	rec  *survey.Recorder
	line *Timeline
	base string // the run's page, for the links of checkpoints
	sel  string // id of the chosen checkpoint
	end  ckpt.Time
}

// Recorder draws a run as its flight recorder.
func Recorder(rec *survey.Recorder, line *Timeline, page, chosen string) template.HTML {
	d := &recorder{rec: rec, line: line, base: page, sel: chosen, end: rec.Ended}
	if d.end.IsZero() {
		d.end = rec.At
	}
	d.put(`<svg id="rec" viewBox="0 0 `, recWidth, ` `, recHeight, `" data-w="`, recWidth, `" data-l="`, recLeft,
		`" role="group" aria-label="Flight recorder">`)
	d.grid()
	d.segments()
	d.steps()
	d.operations()
	d.findings()
	d.sizes()
	d.selected()
	d.checkpoints()
	d.brush()
	d.raw(`</svg>`)
	return d.html()
}

// box draws a rectangle from one moment to another. The script moves it.
func (d *recorder) box(class string, from, to ckpt.Time, y, h, least float64) {
	a, b := d.line.At(from), d.line.At(to)
	d.put(`<rect class="`, class, `" data-a="`, part(a), `" data-b="`, part(b), `" data-min="`, least, `" y="`, y, `" height="`, h,
		`" x="`, recLeft+a*recPlot, `" width="`, max(least, (b-a)*recPlot-.6), `"/>`)
}

// StepID identifies a step on a page.
func StepID(key string) string {
	sum := sha256.Sum256([]byte(key))
	return "step-" + hex.EncodeToString(sum[:8])
}

// link opens a link to the transcript. The table has the same links for those who use no pointer.
func (d *recorder) link(query string) {
	d.put(`<a class="to" tabindex="-1" aria-hidden="true" href="`, told(d.base), `/steps?`, told(query), `">`)
}

// group opens a group at a moment. The script moves it.
func (d *recorder) group(t ckpt.Time) {
	a := d.line.At(t)
	d.put(`<g data-a="`, part(a), `" transform="translate(`, recLeft+a*recPlot, ` 0)">`)
}

func (d *recorder) visible(t ckpt.Time) bool {
	return !t.Before(d.line.from.Time) && !t.After(d.line.to.Time)
}

func (d *recorder) grid() {
	for _, l := range recLanes {
		d.put(`<text class="lab" x="0" y="`, l.y+4, `">`, l.name, `</text><path class="gl" d="M`, recLeft, ` `, l.y+13, `H`, recWidth, `"/>`)
	}
	ticks, layout := d.line.ticks()
	for _, t := range ticks {
		d.group(t)
		d.put(`<path class="gl" d="M0 18V`, recBottom, `"/><text x="0" y="12" text-anchor="middle">`, told(t.In(Zone).Format(layout)), `</text></g>`)
	}
	for _, g := range d.line.gaps {
		d.box("gap", g.from, g.to, 20, 240, 0)
	}
}

// gapLabels writes the lengths of the folded gaps above all lanes.
func (d *recorder) gapLabels() {
	for _, g := range d.line.gaps {
		length := Age(g.to.Sub(g.from.Time))
		d.group(ckpt.At(g.from.Add(g.to.Sub(g.from.Time) / 2)))
		d.put(`<rect x="-27" y="108" width="54" height="20" rx="3" class="fold"/><text y="122" text-anchor="middle">`, told(length), `</text></g>`)
	}
}

func (d *recorder) segments() {
	for _, s := range d.rec.Segments {
		to := s.To
		if to.IsZero() {
			to = d.end
		}
		if to.Before(d.line.from.Time) || s.From.After(d.line.to.Time) {
			continue
		}
		d.box("att", s.From, to, 26, 16, 3)
		if d.visible(s.From) {
			d.group(s.From)
			d.put(`<text x="5" y="38">`, s.Attempt, `</text></g>`)
		}
		if broke(s.How) && d.visible(to) {
			d.group(to)
			d.put(`<path class="dead" d="m-4 30 8 8m0-8-8 8"><title>the owner was lost: `, told(Dashes(s.How)), `</title></path></g>`)
		}
	}
}

// bin returns the time of one bin.
func (d *recorder) bin(i int) (from, to ckpt.Time) {
	length := time.Duration(d.rec.BinMS) * time.Millisecond
	from = ckpt.At(d.rec.From.Add(time.Duration(i) * length))
	return from, ckpt.At(from.Add(length))
}

func (d *recorder) steps() {
	most := int64(1)
	for _, b := range d.rec.Steps.Bins {
		most = max(most, b.Count)
	}
	for _, b := range d.rec.Steps.Bins {
		from, to := d.bin(b.I)
		h := 4 + 12*float64(b.Count)/float64(most)
		d.link("from=" + strconv.FormatInt(from.UnixMilli(), 10))
		d.put(`<title>`, told(Plural(int(b.Count), "step")), `, `, b.Failed, ` failed</title>`)
		d.box("st", from, to, 74-h, h, 1.5)
		if f := share(b.Failed, b.Count, h); f > 0 {
			d.box("st f", from, to, 74-f, f, 1.5)
		}
		d.raw(`</a>`)
	}
	for i := range d.rec.Steps.Marks {
		s := &d.rec.Steps.Marks[i]
		to, class, y, h := s.EndedAt, "st", 58.0, 16.0
		switch s.Status {
		case ckpt.StepFailed:
			class, y, h = "st f", 54, 20
		case ckpt.StepStarted, ckpt.StepInterrupted:
			class = "st i"
		}
		if to.IsZero() {
			to = d.endOf(s.StartedAt)
		}
		d.link("at=" + url.QueryEscape(s.Key) + "#" + StepID(s.Key))
		d.put(`<title>`, told(FirstLine(s.Name, 60)), `: `, told(s.Status), told(because(s.Error)), `</title>`)
		d.box(class, s.StartedAt, to, y, h, 1.5)
		d.raw(`</a>`)
	}
}

// because adds an error to how a step ended.
func because(text string) string {
	if text == "" {
		return ""
	}
	return ": " + FirstLine(text, 120)
}

// share is the part of a bar's height that stands for the failed ones. One failed step of many can still be seen.
func share(failed, all int64, height float64) float64 {
	if failed == 0 {
		return 0
	}
	return max(1.5, height*float64(failed)/float64(all))
}

// endOf returns the end of the segment that contains a moment.
func (d *recorder) endOf(t ckpt.Time) ckpt.Time {
	for i := len(d.rec.Segments) - 1; i >= 0; i-- {
		if s := d.rec.Segments[i]; !t.Before(s.From.Time) {
			if s.To.IsZero() || s.To.Before(t.Time) {
				break
			}
			return s.To
		}
	}
	return d.end
}

func (d *recorder) operations() {
	for _, b := range d.rec.Operations.Bins {
		from, to := d.bin(b.I)
		class := "op"
		switch {
		case b.Uncertain > 0:
			class = "op u"
		case b.Failed > 0:
			class = "op f"
		}
		d.box(class, from, to, 92, 16, 4)
	}
	for i := range d.rec.Operations.Marks {
		o := &d.rec.Operations.Marks[i]
		class, to := "op", o.EndedAt
		switch o.Status {
		case ckpt.OperationUncertain:
			class = "op u"
		case ckpt.OperationFailed:
			class = "op f"
		}
		if to.IsZero() {
			to = d.endOf(o.StartedAt)
		}
		a, b := d.line.At(o.StartedAt), d.line.At(to)
		d.put(`<rect class="`, class, `" data-a="`, part(a), `" data-b="`, part(b), `" data-min="8" y="92" height="16" rx="3" x="`,
			recLeft+a*recPlot, `" width="`, max(8, (b-a)*recPlot), `"><title>`, told(FirstLine(o.Name, 80)), `: `, told(o.Status), `</title></rect>`)
		if o.Status == ckpt.OperationUncertain {
			d.group(o.StartedAt)
			d.put(`<text x="-6" y="104" text-anchor="end" class="lab">`, told(FirstLine(o.Name, 24)), ` ?</text></g>`)
		}
	}
}

func (d *recorder) findings() {
	for _, b := range d.rec.Findings.Bins {
		from, _ := d.bin(b.I)
		d.group(from)
		d.raw(`<g transform="translate(0 212)">`)
		d.triangle(findingClass(b.Worst, b.Open > 0), 5)
		d.raw(`</g></g>`)
	}
	last := -1.0
	for i := range d.rec.Findings.Marks {
		f := &d.rec.Findings.Marks[i]
		d.group(f.At)
		d.raw(`<g transform="translate(0 212)">`)
		d.triangle(findingClass(f.Severity, f.Closed == ""), 5)
		d.put(`<title>`, told(RuleWords(f.Rule)), `: `, told(FirstLine(f.Message, 200)), `</title></g>`)
		// Write a name only if there is room for it.
		if x := d.line.At(f.At); x-last > .12 && x < .88 {
			text := RuleWords(f.Rule)
			if f.Closed != "" {
				text += ", " + string(f.Closed)
			}
			if d.clear(i, x) {
				d.put(`<text x="9" y="216">`, told(FirstLine(text, 28)), `</text>`)
			}
			last = x
		}
		d.raw(`</g>`)
	}
}

// clear reports whether the next finding is far enough away that it does not overlap the
// name.
func (d *recorder) clear(i int, x float64) bool {
	return i+1 >= len(d.rec.Findings.Marks) || d.line.At(d.rec.Findings.Marks[i+1].At)-x > .12
}

func (d *recorder) sizes() {
	most := int64(1)
	for i := range d.rec.Checkpoints.Marks {
		most = max(most, d.rec.Checkpoints.Marks[i].Size)
	}
	for i := range d.rec.Checkpoints.Marks {
		c := &d.rec.Checkpoints.Marks[i]
		a := d.line.At(c.CreatedAt)
		h := max(1, 30*float64(c.Size)/float64(most))
		d.put(`<rect class="st2" data-a="`, part(a), `" data-b="`, part(a+.003), `" data-min="2" x="`, recLeft+a*recPlot,
			`" width="2" y="`, 260-h, `" height="`, h, `"/>`)
	}
	if len(d.rec.Checkpoints.Marks) > 0 {
		d.put(`<text x="`, recWidth, `" y="226" text-anchor="end">`, Bytes(most), `</text>`)
	}
}

func (d *recorder) selected() {
	for i := range d.rec.Checkpoints.Marks {
		if c := &d.rec.Checkpoints.Marks[i]; c.ID == d.sel {
			a := d.line.At(c.CreatedAt)
			d.put(`<g id="selx" class="selx" data-a="`, part(a), `" transform="translate(`, recLeft+a*recPlot,
				` 0)"><path d="M0 18V`, recBottom, `"/></g>`)
		}
	}
}

func (d *recorder) checkpoints() {
	most := int64(1)
	for _, b := range d.rec.Checkpoints.Bins {
		most = max(most, b.Routine, b.PreOperation, b.Recovery)
	}
	for _, b := range d.rec.Checkpoints.Bins {
		from, to := d.bin(b.I)
		for _, k := range []struct {
			kind  ckpt.Kind
			count int64
		}{{ckpt.KindRoutine, b.Routine}, {ckpt.KindPreOperation, b.PreOperation}, {ckpt.KindRecovery, b.Recovery}} {
			if k.count > 0 {
				h := 3 + 9*float64(k.count)/float64(most)
				d.box("cpb", from, to, float64(kindLane(k.kind))+7-h, h, 1.5)
			}
		}
	}
	if len(d.rec.Checkpoints.Marks) > 0 {
		d.raw(`<g role="listbox" aria-label="Checkpoints" aria-orientation="horizontal">`)
		for i := range d.rec.Checkpoints.Marks {
			d.checkpointMark(&d.rec.Checkpoints.Marks[i])
		}
		d.raw(`</g>`)
	}
	d.gapLabels()
}

func (d *recorder) checkpointMark(c *survey.CheckpointMark) {
	chosen, tab, class := "false", "-1", ""
	if c.Suspect {
		class = "sus"
	}
	if c.ID == d.sel {
		chosen, tab, class = "true", "0", "sel"
	}
	a := d.line.At(c.CreatedAt)
	d.put(`<a class="mk" role="option" tabindex="`, tab, `" aria-selected="`, chosen, `" href="`, told(d.base), `?cp=`,
		told(c.ID), `" data-a="`, part(a),
		`" data-y="`, kindLane(c.Kind), `" transform="translate(`, recLeft+a*recPlot, ` `, kindLane(c.Kind),
		`)" aria-label="checkpoint `, c.Seq, `, `, KindWord(c.Kind), `, `, told(Clock(c.CreatedAt)))
	if c.Pinned {
		d.raw(`, pinned`)
	}
	if c.Suspect {
		d.raw(`, suspect`)
	}
	d.raw(`">`)
	d.checkpoint(c.Kind, class, 4)
	if c.Pinned {
		d.raw(`<path class="pin" d="M0-8v-5M-3-13H3"/>`)
	}
	d.raw(`</a>`)
}

// brush draws the whole run below all lanes, and marks the part of it that is in view.
func (d *recorder) brush() {
	whole := NewTimeline(d.rec.Began, d.end, d.rec.Segments)
	x := func(t ckpt.Time) float64 { return recLeft + whole.At(t)*recPlot }
	d.put(`<g id="brush"><text class="lab" x="0" y="292">All of it</text><rect class="sunk" x="`, recLeft,
		`" y="276" width="`, recPlot, `" height="22"/>`)
	for _, g := range whole.gaps {
		d.put(`<rect class="gap" x="`, x(g.from), `" y="276" width="`, x(g.to)-x(g.from), `" height="22"/>`)
	}
	most := int64(1)
	for _, b := range d.rec.Whole.Steps {
		most = max(most, b.Count)
	}
	length := time.Duration(d.rec.Whole.BinMS) * time.Millisecond
	for _, b := range d.rec.Whole.Steps {
		from := ckpt.At(d.rec.Began.Add(time.Duration(b.I) * length))
		h := 2 + 16*float64(b.Count)/float64(most)
		width := max(1.5, x(ckpt.At(from.Add(length)))-x(from)-1)
		d.put(`<rect class="st" x="`, x(from), `" y="`, 297-h, `" width="`, width, `" height="`, h, `"/>`)
		if f := share(b.Failed, b.Count, h); f > 0 {
			d.put(`<rect class="st f" x="`, x(from), `" y="`, 297-f, `" width="`, width, `" height="`, f, `"/>`)
		}
	}
	a, b := x(d.line.from), x(d.line.to)
	d.put(`<rect class="win" x="`, a, `" y="276" width="`, max(2, b-a), `" height="22"/><rect class="hd" id="h1" x="`,
		a-3, `" y="276" width="6" height="22" rx="2"/>`,
		`<rect class="hd" id="h2" x="`, b-3, `" y="276" width="6" height="22" rx="2"/></g>`)
}
