package term

import (
	"io"
	"os"
	"strconv"
	"time"

	"github.com/mattn/go-isatty"
)

// Style says how text is shown on a stream: in color if a person sees it, and in tables as wide as the terminal. The
// zero value uses no colors and cuts nothing.
type Style struct {
	Terminal bool // a person may be reading
	colour   bool
	able     bool      // the terminal supports colors
	width    int       // of the terminal; 0 for no limit
	sized    bool      // the width was set: prose is wrapped to it, even if no person reads
	now      time.Time // the start of relative times
}

// unknownWidth is the width of a stream that does not report its width.
const unknownWidth = 80

// NewStyle returns the style of a stream. env looks up an environment variable. NewStyle uses NO_COLOR
// (https://no-color.org), CLICOLOR, CLICOLOR_FORCE (https://bixense.com/clicolors) and COLUMNS.
func NewStyle(w io.Writer, env func(string) string) *Style {
	s := &Style{Terminal: IsTerminal(w), width: unknownWidth, now: time.Now()}
	s.able = !s.Terminal || prepareTerminal(w)
	switch force := env("CLICOLOR_FORCE"); {
	case env("NO_COLOR") != "":
	case force != "" && force != "0":
		s.colour = s.able
	default:
		s.colour = s.Terminal && s.able && env("TERM") != "dumb" && env("CLICOLOR") != "0"
	}
	if n, err := strconv.Atoi(env("COLUMNS")); err == nil && n > 0 {
		s.width, s.sized = n, true
	} else if n := terminalWidth(w); s.Terminal && n > 0 {
		s.width = n
	}
	return s
}

// Choose applies the flags --color (always, never or auto) and --wide (tables show everything).
func (s *Style) Choose(color string, wide bool) {
	switch color {
	case "always":
		s.colour = s.able
	case "never":
		s.colour = false
	}
	if wide {
		s.width = 0
	}
}

// Columns returns the maximum width of lines of prose; 0 if it is not set.
func (s *Style) Columns() int {
	if !s.Terminal && !s.sized {
		return 0
	}
	return s.width
}

// Wide reports whether everything is shown, however wide it is.
func (s *Style) Wide() bool { return s.width == 0 }

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

// Red marks a failure.
func (s *Style) Red(text string) string { return s.paint("31", text) }

// Green marks a success.
func (s *Style) Green(text string) string { return s.paint("32", text) }

// Yellow marks what needs attention.
func (s *Style) Yellow(text string) string { return s.paint("33", text) }

// Cyan marks special text that is neither good nor bad.
func (s *Style) Cyan(text string) string { return s.paint("36", text) }

// Bold marks headings.
func (s *Style) Bold(text string) string { return s.paint("1", text) }

// Dim marks text that is less important than the text next to it.
func (s *Style) Dim(text string) string { return s.paint("2", text) }
