package term

import (
	"fmt"
	"io"
	"slices"
	"strings"
)

// Table is text in columns, the most important column first. The first character of a heading gives the kind of the
// column:
//
//	">"  numbers, aligned to the right
//	"~"  prose: cut first if the table is too wide
//	"&"  prose that is asked for: wrapped if the table is too wide
//	"?"  left out if the table is too wide without prose
//	"#"  ids: shortened as far as they still differ
type Table struct {
	columns []column
	rows    [][]string
	whole   bool
	bare    bool // without headings
}

type column struct {
	head                          string
	right, prose, optional, short bool
	wrapped, typed                bool
}

const (
	gapBetween = 2
	leastCut   = 6  // a column without prose keeps at least this width
	leastID    = 13 // the time in an id, to a millisecond
)

// NewTable makes a table with these headings and no rows.
func NewTable(heads ...string) *Table {
	t := &Table{}
	for _, head := range heads {
		var c column
		for ; head != "" && strings.Contains(">~&?#", head[:1]); head = head[1:] {
			switch head[0] {
			case '>':
				c.right = true
			case '~':
				c.prose = true
			case '&':
				c.prose, c.wrapped = true, true
			case '?':
				c.optional = true
			case '#':
				c.short = true
			}
		}
		c.head = head
		t.columns = append(t.columns, c)
	}
	return t
}

// Whole never cuts the table, for example a table that has only measurements.
func (t *Table) Whole() *Table {
	t.whole = true
	return t
}

// Typed leaves out a column whose value the user has typed: the value is the same in each row.
func (t *Table) Typed(typed bool, head string) {
	i := slices.IndexFunc(t.columns, func(c column) bool { return c.head == head })
	t.columns[i].typed = typed
}

// Headless leaves out the headings, for rows that continue a table.
func (t *Table) Headless() { t.bare = true }

// Add adds a row. Its cells are escaped.
func (t *Table) Add(cells ...string) {
	row := make([]string, len(cells))
	for i, cell := range cells {
		row[i] = Escape(cell)
	}
	t.rows = append(t.rows, row)
}

// Write prints the table. Each column is as wide as its widest cell, and the table at most as wide as the terminal.
// Color codes do not count.
func (t *Table) Write(w io.Writer, s *Style) {
	heads := make([]string, len(t.columns))
	for i, c := range t.columns {
		heads[i] = s.Bold(c.head)
	}
	all := append([][]string{heads}, t.rows...)
	if limit := s.width; limit > 0 && !t.whole {
		all = t.shortIDs(all)
		t.fit(all, limit).print(w, t.shown(all))
		return
	}
	t.fit(all, 0).print(w, t.shown(all))
}

func (t *Table) shown(rows [][]string) [][]string {
	if t.bare {
		return rows[1:]
	}
	return rows
}

// shortIDs cuts the ids of each column to the shortest beginnings that differ.
func (t *Table) shortIDs(rows [][]string) [][]string {
	out := make([][]string, len(rows))
	for i, row := range rows {
		out[i] = slices.Clone(row)
	}
	for c := range t.columns {
		if t.columns[c].short {
			n := shortest(rows[1:], c)
			for _, row := range out[1:] {
				if len(row[c]) > n {
					row[c] = row[c][:n]
				}
			}
		}
	}
	return out
}

// shortest returns the length at which the ids of a column differ.
func shortest(rows [][]string, c int) int {
	for n := leastID; ; n++ {
		seen, longest, same := map[string]string{}, 0, false
		for _, row := range rows {
			id := row[c]
			longest = max(longest, len(id))
			short := id[:min(n, len(id))]
			if other, found := seen[short]; found && other != id {
				same = true
			}
			seen[short] = id
		}
		if !same || n >= longest {
			return n
		}
	}
}

// layout has the width of each column, -1 for a column that is left out.
type layout struct {
	columns []column
	width   []int
}

// fit finds widths with which the table is at most as wide as limit; 0 is no limit. It cuts prose, then leaves out
// optional columns, then cuts any text, and then leaves out columns from the right.
func (t *Table) fit(rows [][]string, limit int) *layout {
	l := &layout{columns: t.columns, width: make([]int, len(t.columns))}
	for _, row := range rows {
		for i, cell := range row {
			l.width[i] = max(l.width[i], Visible(cell))
		}
	}
	natural := slices.Clone(l.width)
	for i, c := range l.columns {
		if c.head == "" && l.width[i] == 0 || c.typed {
			l.width[i] = -1
		}
	}
	if limit == 0 {
		return l
	}
	prose := func(c column) bool { return c.prose }
	l.cut(limit, leastProse, prose)
	for i := len(t.columns) - 1; i > 0 && l.total() > limit; i-- {
		if t.columns[i].optional {
			l.width[i] = -1
		}
	}
	for i, c := range l.columns { // columns that are left out make room
		if c.prose && l.width[i] >= 0 {
			l.width[i] = natural[i]
		}
	}
	l.cut(limit, leastProse, prose)
	l.cut(limit, leastCut, func(c column) bool { return !c.right && !c.short })
	for i := len(t.columns) - 1; i > 0 && l.total() > limit; i-- {
		l.width[i] = -1
	}
	if over := l.total() - limit; over > 0 {
		l.width[0] = max(1, l.width[0]-over)
	}
	return l
}

// cut makes the widest of some columns narrower until the table fits, but not narrower than least.
func (l *layout) cut(limit, least int, which func(column) bool) {
	for over := l.total() - limit; over > 0; over-- {
		widest := -1
		for i, c := range l.columns {
			if which(c) && l.width[i] > least && (widest < 0 || l.width[i] > l.width[widest]) {
				widest = i
			}
		}
		if widest < 0 {
			return
		}
		l.width[widest]--
	}
}

func (l *layout) total() int {
	sum := -gapBetween
	for _, w := range l.width {
		if w >= 0 {
			sum += w + gapBetween
		}
	}
	return sum
}

func (l *layout) print(w io.Writer, rows [][]string) {
	for _, row := range rows {
		for _, line := range l.lines(row) {
			fmt.Fprintln(w, l.line(line))
		}
	}
}

// lines breaks a row into the rows that its wrapped columns need.
func (l *layout) lines(row []string) [][]string {
	lines := [][]string{slices.Clone(row)}
	for i, cell := range row {
		if !l.columns[i].wrapped || l.width[i] < 1 {
			continue
		}
		for n, part := range wrap(cell, l.width[i]) {
			if n == len(lines) {
				lines = append(lines, make([]string, len(row)))
			}
			lines[n][i] = part
		}
	}
	return lines
}

func (l *layout) line(row []string) string {
	var b strings.Builder
	for i, cell := range row {
		if l.width[i] < 0 {
			continue
		}
		cell = cutTo(cell, l.width[i])
		gap := strings.Repeat(" ", max(0, l.width[i]-Visible(cell)))
		if l.columns[i].right {
			cell, gap = gap+cell, ""
		}
		b.WriteString(cell)
		b.WriteString(gap)
		b.WriteString(strings.Repeat(" ", gapBetween))
	}
	return strings.TrimRight(b.String(), " ")
}

// ID returns an id as tables show it: its beginning, or the whole id if s is wide.
func (s *Style) ID(id string) string {
	if s.Wide() || len(id) <= leastID {
		return id
	}
	return id[:leastID]
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
		s.Hanging(w, s.Dim(row[0])+strings.Repeat(" ", width-Visible(row[0]))+"  ", row[1])
	}
}
