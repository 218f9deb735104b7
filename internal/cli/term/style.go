package term

import (
	"io"
	"os"
	"strconv"
	"time"

	"github.com/mattn/go-isatty"
)

// Style is how text is shown on a stream: in color where a person sees it, and in tables as wide as the terminal. The
// zero value colors nothing and cuts nothing.
type Style struct {
	Terminal bool // a person may be watching
	colour   bool
	able     bool      // the terminal understands colors
	width    int       // of the terminal; 0 for no limit
	sized    bool      // somebody has said how wide it is: prose is wrapped to it, also where no person watches
	now      time.Time // that relative times count from
}

// unknownWidth is taken for the width of what does not say how wide it is.
const unknownWidth = 80

// NewStyle is the style of a stream. env looks up an environment variable: NO_COLOR (https://no-color.org), CLICOLOR,
// CLICOLOR_FORCE (https://bixense.com/clicolors) and COLUMNS are heeded.
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

// Choose takes what the flags --color and --wide say: always, never or auto, and whether tables show all.
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

// Columns is how wide lines of prose may be; 0 where nobody has said.
func (s *Style) Columns() int {
	if !s.Terminal && !s.sized {
		return 0
	}
	return s.width
}

// Wide says whether everything is shown, however wide it is.
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
