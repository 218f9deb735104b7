package measure

import (
	"fmt"
	"io"
	"math"
	"strings"

	"github.com/ckptsidecar/ckptsidecar/internal/cli/term"
)

// Bars compares numbers by the lengths of bars, in groups.
type Bars struct {
	Title  string
	groups []barGroup
}

type barGroup struct {
	name string
	bars []Bar
}

// Bar is one bar of a drawing.
type Bar struct {
	Name  string
	Value float64
	Text  string // the value, written for people
}

func (p *Bars) group(name string, bars ...Bar) {
	p.groups = append(p.groups, barGroup{name, bars})
}

const plotWidth = 60

// Write draws the groups. Each has its own scale.
func (p *Bars) Write(w io.Writer, s *term.Style) {
	fmt.Fprintln(w, s.Bold(p.Title))
	for _, g := range p.groups {
		fmt.Fprintln(w, g.name)
		most, wide := 0.0, 0
		for _, b := range g.bars {
			most, wide = max(most, b.Value), max(wide, term.Visible(b.Name))
		}
		for _, b := range g.bars {
			name := b.Name + strings.Repeat(" ", wide-term.Visible(b.Name))
			fmt.Fprintf(w, "  %s  %s%s\n", s.Dim(name), barLine(b.Value, most, plotWidth), b.Text)
		}
	}
}

// barLine returns a bar of at most width characters, to half a character, and a space. A
// value above 0 gets at least half a character.
func barLine(value, most float64, width int) string {
	if most <= 0 || value <= 0 {
		return ""
	}
	halves := max(1, int(math.Round(value/most*float64(2*width))))
	return strings.Repeat("█", halves/2) + strings.Repeat("▌", halves%2) + " "
}

// Join adds a bar to the group with this name. The first bar makes the group.
func (p *Bars) Join(name string, b Bar) {
	for i := range p.groups {
		if p.groups[i].name == name {
			p.groups[i].bars = append(p.groups[i].bars, b)
			return
		}
	}
	p.group(name, b)
}
