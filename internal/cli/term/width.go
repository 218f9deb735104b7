package term

import (
	"io"
	"strings"
	"unicode"
)

const (
	leastProse = 30 // columns; prose is not wrapped or cut to less
	ellipsis   = "…"
)

// Paragraph writes a text with each line indented. On a terminal, it breaks lines between
// words, so that none is longer than the window.
func Paragraph(w io.Writer, s *Style, indent int, text string) {
	s.Hanging(w, strings.Repeat(" ", indent), Escape(text))
}

// Hanging writes a text after the first part of its line. On a terminal, it breaks lines
// between words, so that none is longer than the window, and indents the following lines
// to the start of the text. Both must be escaped already.
func (s *Style) Hanging(w io.Writer, first, text string) {
	indent := Visible(first)
	width := s.Columns() - indent
	if width < leastProse || Visible(text) <= width {
		Println(w, first+text)
		return
	}
	for _, line := range wrap(text, width) {
		Println(w, first+line)
		first = strings.Repeat(" ", indent)
	}
}

// wrap breaks a text between words into lines of at most width. A longer word has a line of its own.
func wrap(text string, width int) (lines []string) {
	if Visible(text) <= width {
		return []string{text}
	}
	line := ""
	for _, word := range strings.Fields(text) {
		switch {
		case line == "":
			line = word
		case Visible(line)+1+Visible(word) > width:
			lines = append(lines, line)
			line = word
		default:
			line += " " + word
		}
	}
	return append(lines, line)
}

// Fit cuts a line to the width of the terminal.
func (s *Style) Fit(line string) string {
	return s.FitBefore(line, "")
}

// FitBefore cuts a line so that there is room after it for an end that must not be cut.
func (s *Style) FitBefore(line, end string) string {
	if s.Wide() {
		return line + end
	}
	return cutTo(Escape(line), max(1, s.width-Visible(end))) + end
}

// cutTo cuts a text to a width, with an ellipsis at its end. It keeps color codes.
func cutTo(text string, width int) string {
	if Visible(text) <= width {
		return text
	}
	var b strings.Builder
	left, done := width-1, false
	for i := 0; i < len(text); {
		if n := colorCode(text[i:]); n > 0 {
			b.WriteString(text[i : i+n])
			i += n
			continue
		}
		r, n := firstRune(text[i:])
		if columns := runeWidth(r); !done && columns <= left {
			b.WriteString(text[i : i+n])
			left -= columns
		} else if !done {
			b.WriteString(ellipsis)
			done = true
		}
		i += n
	}
	return b.String()
}

func firstRune(text string) (r rune, n int) {
	for i, c := range text {
		if i > 0 {
			return r, i
		}
		r = c
	}
	return r, len(text)
}

// Visible counts the columns that a terminal needs. Color codes do not count.
func Visible(s string) (n int) {
	for i := 0; i < len(s); {
		if code := colorCode(s[i:]); code > 0 {
			i += code
			continue
		}
		r, size := firstRune(s[i:])
		n += runeWidth(r)
		i += size
	}
	return n
}

// wide are the characters that take two columns: East Asian characters, and emoji.
var wide = &unicode.RangeTable{
	R16: []unicode.Range16{
		{Lo: 0x1100, Hi: 0x115f, Stride: 1}, {Lo: 0x2e80, Hi: 0xa4cf, Stride: 1}, {Lo: 0xac00, Hi: 0xd7a3, Stride: 1},
		{Lo: 0xf900, Hi: 0xfaff, Stride: 1}, {Lo: 0xfe30, Hi: 0xfe6f, Stride: 1}, {Lo: 0xff00, Hi: 0xff60, Stride: 1},
		{Lo: 0xffe0, Hi: 0xffe6, Stride: 1},
	},
	R32: []unicode.Range32{{Lo: 0x1f300, Hi: 0x1f64f, Stride: 1}, {Lo: 0x1f680, Hi: 0x1f6ff, Stride: 1},
		{Lo: 0x1f900, Hi: 0x1faff, Stride: 1}, {Lo: 0x20000, Hi: 0x3fffd, Stride: 1}},
}

// runeWidth returns how many columns a character takes.
func runeWidth(r rune) int {
	switch {
	case r < 0x300:
		return 1
	case unicode.In(r, unicode.Mn, unicode.Me):
		return 0
	case unicode.Is(wide, r):
		return 2
	}
	return 1
}
