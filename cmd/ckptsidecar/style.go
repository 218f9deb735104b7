package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"unicode/utf8"

	"github.com/mattn/go-isatty"

	"github.com/ckptsidecar/ckptsidecar/internal/daemon"
)

// style colours text where a person sees it: on a terminal, and unless the
// environment says NO_COLOR (https://no-color.org).
type style struct {
	terminal bool
	colour   bool
}

func newStyle(w io.Writer, env daemon.Environment) *style {
	terminal := isTerminal(w)
	return &style{
		terminal: terminal,
		colour:   terminal && env("NO_COLOR") == "" && env("TERM") != "dumb" && prepareTerminal(w),
	}
}

func isTerminal(stream any) bool {
	f, ok := stream.(*os.File)
	return ok && isatty.IsTerminal(f.Fd())
}

func (s *style) paint(code, text string) string {
	if !s.colour || text == "" {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

func (s *style) red(text string) string    { return s.paint("31", text) }
func (s *style) green(text string) string  { return s.paint("32", text) }
func (s *style) yellow(text string) string { return s.paint("33", text) }
func (s *style) cyan(text string) string   { return s.paint("36", text) }
func (s *style) bold(text string) string   { return s.paint("1", text) }
func (s *style) dim(text string) string    { return s.paint("2", text) }

// table is text in columns. A column whose heading begins with ">" is set
// flush right.
type table struct {
	heads []string
	rows  [][]string
}

func newTable(heads ...string) *table { return &table{heads: heads} }

func (t *table) add(cells ...string) { t.rows = append(t.rows, cells) }

// write sets the columns as wide as they must be. Colours do not count.
func (t *table) write(w io.Writer, s *style) {
	width := make([]int, len(t.heads))
	heads := make([]string, len(t.heads))
	for i, h := range t.heads {
		heads[i] = s.bold(strings.TrimPrefix(h, ">"))
	}
	all := append([][]string{heads}, t.rows...)
	for _, row := range all {
		for i, cell := range row {
			width[i] = max(width[i], visible(cell))
		}
	}
	for _, row := range all {
		fmt.Fprintln(w, t.line(row, width))
	}
}

func (t *table) line(row []string, width []int) string {
	var b strings.Builder
	for i, cell := range row {
		gap := strings.Repeat(" ", width[i]-visible(cell))
		if strings.HasPrefix(t.heads[i], ">") {
			cell, gap = gap+cell, ""
		}
		b.WriteString(cell)
		b.WriteString(gap)
		b.WriteString("  ")
	}
	return strings.TrimRight(b.String(), " ")
}

// visible counts the characters that a terminal shows.
func visible(s string) int {
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

// pairs is a list of names and what they are, in two columns.
type pairs [][2]string

func (p *pairs) add(name, value string) { *p = append(*p, [2]string{name, value}) }

func (p *pairs) write(w io.Writer, s *style) {
	width := 0
	for _, row := range *p {
		width = max(width, visible(row[0]))
	}
	for _, row := range *p {
		fmt.Fprintf(w, "%s%s  %s\n", s.dim(row[0]), strings.Repeat(" ", width-visible(row[0])), row[1])
	}
}
