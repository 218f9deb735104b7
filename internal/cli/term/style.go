package term

import (
	"fmt"
	"io"
	"os"
	"strings"
	"unicode/utf8"

	"github.com/mattn/go-isatty"
)

// Style colors text where a person sees it: on a terminal, and unless the
// environment says NO_COLOR (https://no-color.org). The zero value colors nothing.
type Style struct {
	Terminal bool // a person may be watching
	colour   bool
}

// NewStyle is the style of a stream. env looks up an environment variable.
func NewStyle(w io.Writer, env func(string) string) *Style {
	terminal := IsTerminal(w)
	return &Style{
		Terminal: terminal,
		colour:   terminal && env("NO_COLOR") == "" && env("TERM") != "dumb" && prepareTerminal(w),
	}
}

// IsTerminal reports whether a stream is a terminal.
func IsTerminal(stream any) bool {
	f, ok := stream.(*os.File)
	return ok && isatty.IsTerminal(f.Fd())
}

func (s *Style) paint(code, text string) string {
	if !s.colour || text == "" {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

// Red marks what failed.
func (s *Style) Red(text string) string { return s.paint("31", text) }

// Green marks what is well.
func (s *Style) Green(text string) string { return s.paint("32", text) }

// Yellow marks what needs attention.
func (s *Style) Yellow(text string) string { return s.paint("33", text) }

// Cyan marks what is special, without being good or bad.
func (s *Style) Cyan(text string) string { return s.paint("36", text) }

// Bold marks headings.
func (s *Style) Bold(text string) string { return s.paint("1", text) }

// Dim marks what is less important than the text beside it.
func (s *Style) Dim(text string) string { return s.paint("2", text) }

// Table is text in columns. A column whose heading begins with ">" is aligned
// to the right.
type Table struct {
	heads []string
	rows  [][]string
}

// NewTable makes a table with these headings and no rows.
func NewTable(heads ...string) *Table { return &Table{heads: heads} }

// Add adds a row. Its cells are escaped.
func (t *Table) Add(cells ...string) {
	row := make([]string, len(cells))
	for i, cell := range cells {
		row[i] = Escape(cell)
	}
	t.rows = append(t.rows, row)
}

// Write prints the table. Each column is as wide as its widest cell; the codes
// of colors do not count.
func (t *Table) Write(w io.Writer, s *Style) {
	width := make([]int, len(t.heads))
	heads := make([]string, len(t.heads))
	for i, h := range t.heads {
		heads[i] = s.Bold(strings.TrimPrefix(h, ">"))
	}
	all := append([][]string{heads}, t.rows...)
	for _, row := range all {
		for i, cell := range row {
			width[i] = max(width[i], Visible(cell))
		}
	}
	for _, row := range all {
		fmt.Fprintln(w, t.line(row, width))
	}
}

func (t *Table) line(row []string, width []int) string {
	var b strings.Builder
	for i, cell := range row {
		gap := strings.Repeat(" ", width[i]-Visible(cell))
		if strings.HasPrefix(t.heads[i], ">") {
			cell, gap = gap+cell, ""
		}
		b.WriteString(cell)
		b.WriteString(gap)
		b.WriteString("  ")
	}
	return strings.TrimRight(b.String(), " ")
}

// Visible counts the characters that a terminal shows: codes of colors do not count.
func Visible(s string) int {
	n := utf8.RuneCountInString(s)
	for {
		_, after, found := strings.Cut(s, "\x1b[")
		if !found {
			return n
		}
		code, rest, _ := strings.Cut(after, "m")
		n -= 3 + len(code)
		s = rest
	}
}

// Pairs is a list of names and their values, in two columns.
type Pairs [][2]string

// Add adds a name with its value. Both are escaped.
func (p *Pairs) Add(name, value string) { *p = append(*p, [2]string{Escape(name), Escape(value)}) }

// Write prints the list.
func (p *Pairs) Write(w io.Writer, s *Style) {
	width := 0
	for _, row := range *p {
		width = max(width, Visible(row[0]))
	}
	for _, row := range *p {
		fmt.Fprintf(w, "%s%s  %s\n", s.Dim(row[0]), strings.Repeat(" ", width-Visible(row[0])), row[1])
	}
}
