package term

import (
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"
)

// Escape makes a text harmless for a terminal and for its reader. It writes characters
// that control a terminal, change the direction of text, begin a line or are invisible as
// \u and their number, as in JSON. It writes bytes that are not UTF-8 as \x and their
// value. It keeps color codes of the kind that this program itself writes.
func Escape(text string) string { return escape(text, "") }

// escape is Escape, but keeps the characters in also.
func escape(text, also string) string {
	i := firstHarmful(text, also)
	if i < 0 {
		return text
	}
	var b strings.Builder
	b.Grow(len(text) + 16)
	b.WriteString(text[:i])
	for i < len(text) {
		if n := colorCode(text[i:]); n > 0 {
			b.WriteString(text[i : i+n])
			i += n
			continue
		}
		r, n := utf8.DecodeRuneInString(text[i:])
		switch {
		case r == utf8.RuneError && n == 1:
			fmt.Fprintf(&b, `\x%02x`, text[i])
		case harmful(r) && !strings.ContainsRune(also, r):
			writeCode(&b, r)
		default:
			b.WriteString(text[i : i+n])
		}
		i += n
	}
	return b.String()
}

func firstHarmful(text, also string) int {
	for i, r := range text {
		if r == utf8.RuneError || harmful(r) && !strings.ContainsRune(also, r) {
			return i
		}
	}
	return -1
}

// writeCode writes a character as JSON does. A character above U+FFFF takes two codes.
func writeCode(b *strings.Builder, r rune) {
	if r >= 0x10000 {
		r -= 0x10000
		fmt.Fprintf(b, `\u%04x\u%04x`, 0xd800+(r>>10), 0xdc00+(r&0x3ff))
		return
	}
	fmt.Fprintf(b, `\u%04x`, r)
}

// harmful reports whether a character can do more to a terminal or its reader than be
// displayed.
func harmful(r rune) bool {
	switch {
	case r < ' ', r >= 0x7f && r <= 0x9f: // C0, DEL, C1
		return true
	case r < 0x61c:
		return false
	case r == 0x61c, r == 0x200e, r == 0x200f: // direction marks
		return true
	case r >= 0x202a && r <= 0x202e, r >= 0x2066 && r <= 0x2069: // embeddings, overrides and isolates
		return true
	case r == 0x2028, r == 0x2029: // line and paragraph separators
		return true
	case r == 0x200b, r >= 0x2060 && r <= 0x2065, r >= 0x206a && r <= 0x206f, r == 0xfeff: // invisible characters
		return true
	case r >= 0xfff9 && r <= 0xfffb: // annotations
		return true
	case r >= 0xe0000 && r <= 0xe007f: // tags: invisible copies of ASCII
		return true
	}
	return false
}

// colors are the codes that Style writes.
var colors = []string{"0", "1", "2", "31", "32", "33", "36"}

// colorCode returns the length of the color code at the start of a text, 0 for none.
func colorCode(text string) int {
	inside, found := strings.CutPrefix(text, "\x1b[")
	if !found {
		return 0
	}
	end := strings.IndexByte(inside[:min(len(inside), 3)], 'm')
	if end < 0 || !slices.Contains(colors, inside[:end]) {
		return 0
	}
	return len("\x1b[") + end + 1
}

// Printf writes a line or a part of one. It escapes each argument that is a text or an
// error, so that no argument can end the line.
func Printf(w io.Writer, format string, args ...any) {
	fmt.Fprintf(w, format, escaped(args)...)
}

// Println writes its arguments as a line, escaped.
func Println(w io.Writer, args ...any) { fmt.Fprintln(w, escaped(args)...) }

// Block writes a text of several lines. It keeps line breaks and tabs.
func Block(w io.Writer, text string) { fmt.Fprintln(w, escape(text, "\n\t")) }

// escaped returns the arguments with all texts in them escaped.
func escaped(args []any) []any {
	safe := make([]any, len(args))
	for i, arg := range args {
		safe[i] = arg
		switch v := arg.(type) {
		case string:
			safe[i] = Escape(v)
		case error:
			safe[i] = Escape(v.Error())
		case fmt.Stringer:
			safe[i] = Escape(v.String())
		case []byte:
			safe[i] = Escape(string(v))
		default:
			switch reflect.ValueOf(arg).Kind() {
			case reflect.String, reflect.Slice, reflect.Array, reflect.Map, reflect.Struct, reflect.Pointer:
				safe[i] = Escape(fmt.Sprint(arg))
			}
		}
	}
	return safe
}

// Writer writes all text for people. It escapes what its callers have forgotten to
// escape: everything but line breaks and tabs. It keeps color codes if the stream shows
// colors.
type Writer struct {
	to    io.Writer
	style *Style

	mu   sync.Mutex
	rest []byte // the beginning of a character whose end has not been written yet
}

// NewWriter returns a Writer for a stream of this style.
func NewWriter(to io.Writer, s *Style) *Writer { return &Writer{to: to, style: s} }

// Write implements io.Writer.
func (w *Writer) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	text := p
	if len(w.rest) > 0 {
		text = append(w.rest, p...)
	}
	whole := len(text) - unfinished(text)
	w.rest = slices.Clone(text[whole:])
	if _, err := io.WriteString(w.to, w.harmless(string(text[:whole]))); err != nil {
		return 0, err
	}
	return len(p), nil
}

// Flush writes the beginning of a character that had no end.
func (w *Writer) Flush() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.rest) == 0 {
		return nil
	}
	rest := string(w.rest)
	w.rest = nil
	_, err := io.WriteString(w.to, w.harmless(rest))
	return err
}

func (w *Writer) harmless(text string) string {
	text = escape(text, "\n\t")
	if w.style.colour {
		return text
	}
	return withoutColors(text)
}

// withoutColors escapes color codes too.
func withoutColors(text string) string { return strings.ReplaceAll(text, "\x1b", `\u001b`) }

// unfinished returns the length of an incomplete character at the end of a text.
func unfinished(text []byte) int {
	for n := 1; n <= min(utf8.UTFMax-1, len(text)); n++ {
		if tail := text[len(text)-n:]; utf8.RuneStart(tail[0]) {
			if !utf8.FullRune(tail) {
				return n
			}
			return 0
		}
	}
	return 0
}

// Raw returns the stream behind a Writer, and any other stream unchanged. It is for data
// that must not change, and for drawing on a terminal.
func Raw(w io.Writer) io.Writer {
	if escaping, ok := w.(*Writer); ok {
		return escaping.to
	}
	return w
}
