package main

import (
	"fmt"
	"io"
	"math"
	"strings"

	"github.com/ckptsidecar/ckptsidecar/internal/cli/measure"
	"github.com/ckptsidecar/ckptsidecar/internal/cli/term"
)

// chart draws lines over a common axis: values one after the other, from 0 up.
type chart struct {
	title  string
	first  string // the label of the left end of the axis
	last   string // and of the right end
	height int    // rows; 0 means 11
	label  func(float64) string
	series []series
}

type series struct {
	name   string
	mark   rune
	values []float64
}

// add adds a line with its own mark.
func (c *chart) add(name string, values []float64) {
	marks := []rune("o*+x")
	c.series = append(c.series, series{name, marks[len(c.series)%len(marks)], values})
}

// write draws the chart. A column shows the median of the values that fall into it. If two lines
// meet, the later line is in front.
func (c *chart) write(w io.Writer, s *term.Style) {
	height := c.height
	if height == 0 {
		height = 11
	}
	top := niceTop(c.most())
	rows := make([][]rune, height)
	for i := range rows {
		rows[i] = []rune(strings.Repeat(" ", chartWidth))
	}
	for _, line := range c.series {
		for x, v := range columns(line.values, chartWidth) {
			if !math.IsNaN(v) {
				rows[rowOf(v, top, height)][x] = line.mark
			}
		}
	}
	fmt.Fprintln(w, s.Bold(c.title)+c.legend())
	c.rows(w, rows, top)
	fmt.Fprintf(w, "%s└%s\n", strings.Repeat(" ", labelWidth), strings.Repeat("─", chartWidth))
	gap := max(1, chartWidth-term.Visible(c.first)-term.Visible(c.last))
	fmt.Fprintf(w, "%s %s%s%s\n", strings.Repeat(" ", labelWidth), c.first, strings.Repeat(" ", gap), c.last)
}

const (
	chartWidth = 60
	labelWidth = 9
)

// rows writes the drawing with the values of some rows beside it.
func (c *chart) rows(w io.Writer, rows [][]rune, top float64) {
	height := len(rows)
	for i, row := range rows {
		label, edge := "", "│"
		if above := height - 1 - i; above == 0 || i == 0 || above == height/2 {
			label, edge = c.label(top*float64(above)/float64(max(1, height-1))), "┤"
		}
		fmt.Fprintf(w, "%*s %s%s\n", labelWidth-1, label, edge, strings.TrimRight(string(row), " "))
	}
}

func (c *chart) most() float64 {
	most := 0.0
	for _, line := range c.series {
		for _, v := range columns(line.values, chartWidth) {
			if v > most { // a NaN is not greater
				most = v
			}
		}
	}
	return most
}

func (c *chart) legend() string {
	if len(c.series) < 2 {
		return ""
	}
	var b strings.Builder
	for _, line := range c.series {
		fmt.Fprintf(&b, "   %c %s", line.mark, line.name)
	}
	return b.String()
}

// rowOf returns the row of a value. The top row is 0.
func rowOf(v, top float64, height int) int {
	up := int(math.Round(v / top * float64(height-1)))
	return height - 1 - min(max(up, 0), height-1)
}

// columns spreads values over a width. A column has the median of its values. If there are fewer
// values than columns, each value is in the middle of its share of the columns, and the other
// columns are NaN.
func columns(values []float64, width int) []float64 {
	list := make([]float64, width)
	n := len(values)
	for x := range list {
		list[x] = math.NaN()
		if n >= width {
			list[x] = measure.Median(values[x*n/width : (x+1)*n/width])
		}
	}
	for i := 0; i < n && n < width; i++ {
		list[(2*i+1)*width/(2*n)] = values[i]
	}
	return list
}

// niceTop returns the first round number that is not below v.
func niceTop(v float64) float64 {
	if v <= 0 || math.IsInf(v, 0) || math.IsNaN(v) {
		return 1
	}
	unit := math.Pow(10, math.Floor(math.Log10(v)))
	for _, factor := range []float64{1, 1.5, 2, 3, 4, 5, 6, 8} {
		if factor*unit >= v {
			return factor * unit
		}
	}
	return 10 * unit
}
