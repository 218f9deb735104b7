package draw

import (
	"html/template"
	"strconv"
	"strings"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

// svg collects marks. Numbers and the constants of this package are added unchanged. Every other text is
// added with text, label or attr, which escape it. This is the only code here that creates HTML without a
// template.
type svg struct{ b strings.Builder }

// raw adds a constant.
func (s *svg) raw(constant string) { s.b.WriteString(constant) }

// num adds a number with as many digits as a screen can show.
func (s *svg) num(f float64) { s.b.WriteString(trimmed(f, 1)) }

// trimmed writes a number without zeros at its end.
func trimmed(f float64, digits int) string {
	text := strconv.FormatFloat(f, 'f', digits, 64)
	if strings.Contains(text, ".") {
		text = strings.TrimRight(strings.TrimRight(text, "0"), ".")
	}
	if text == "-0" {
		return "0"
	}
	return text
}

// put adds constants, numbers, and texts that it escapes: a value of type string is a constant, a told is
// not.
func (s *svg) put(parts ...any) {
	for _, p := range parts {
		switch p := p.(type) {
		case string:
			s.b.WriteString(p)
		case told:
			s.b.WriteString(template.HTMLEscapeString(string(p)))
		case float64:
			s.num(p)
		case int:
			s.b.WriteString(strconv.Itoa(p))
		case int64:
			s.b.WriteString(strconv.FormatInt(p, 10))
		case part:
			s.b.WriteString(trimmed(float64(p), 5))
		}
	}
}

// told is a text from another program or person.
type told string

// part is a share of the axis. The script multiplies it by the width.
type part float64

func (s *svg) html() template.HTML {
	return template.HTML(s.b.String()) //nolint:gosec // put has escaped it
}

// checkpoint draws the mark of a kind.
func (s *svg) checkpoint(k ckpt.Kind, class string, r float64) {
	switch k {
	case ckpt.KindRoutine:
		s.put(`<circle class="cp ro `, class, `" r="`, r, `"/>`)
	case ckpt.KindPreOperation:
		d := r + 1.5
		s.put(`<path class="cp pre `, class, `" d="M0-`, d, `L`, d, ` 0 0 `, d, `-`, d, ` 0Z"/>`)
	default:
		s.put(`<rect class="cp rec `, class, `" x="-`, r, `" y="-`, r, `" width="`, 2*r, `" height="`, 2*r, `" rx="1"/>`)
	}
}

// triangle draws the mark of a finding: critical ones are red, closed ones hollow.
func (s *svg) triangle(class string, r float64) {
	s.put(`<path class="fi `, class, `" d="M0-`, r, `L`, r, ` `, r-1, `H-`, r, `Z"/>`)
}

// Spark draws the changes of a number. It needs at least two values; with fewer, it draws only the bottom
// line.
func Spark(values []float64) template.HTML {
	const w, h = 220.0, 26.0
	s := &svg{}
	s.put(`<svg viewBox="0 0 `, w, ` `, h, `" preserveAspectRatio="none" aria-hidden="true">`)
	if len(values) > 1 {
		most := values[0]
		for _, v := range values {
			most = max(most, v)
		}
		if most <= 0 {
			most = 1
		}
		points := &svg{}
		for i, v := range values {
			if i > 0 {
				points.raw(" ")
			}
			points.put(float64(i)*w/float64(len(values)-1), ",", h-2-v/most*(h-5))
		}
		line := points.b.String()
		s.put(`<polygon class="sparkf" points="0,`, h, ` `, line, ` `, w, `,`, h, `"/><polyline class="spark" points="`, line, `"/>`)
	} else {
		s.put(`<path class="gl" d="M0 `, h-2, `H`, w, `"/>`)
	}
	s.raw(`</svg>`)
	return s.html()
}
