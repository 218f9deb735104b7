package term

import (
	"fmt"
	"io"
	"strings"
	"time"
)

// Progress shows how far long work is. If the stream is not a terminal, it shows
// nothing, so that scripts and logs stay clean, unless Every is set.
type Progress struct {
	to    io.Writer
	style *Style
	what  string
	Every time.Duration // between two lines where nobody sits at a terminal; 0 for none
	shown time.Time
	wide  int
}

// NewProgress shows the progress of some work on a stream, which has this style.
func NewProgress(to io.Writer, s *Style, what string) *Progress {
	p := &Progress{to: Raw(to), style: s, what: what}
	if !s.Terminal {
		p.shown = time.Now() // what is quick needs no line
	}
	return p
}

// Step shows a share of a total, at most ten times a second. A total of 0 is unknown.
func (p *Progress) Step(done, total int64) {
	if total > 0 {
		p.Say("%s %d %%", p.what, min(100, done*100/total))
		return
	}
	p.Say("%s %d", p.what, done)
}

// Say shows a line of text, if one is due.
func (p *Progress) Say(format string, args ...any) {
	if !p.due() {
		return
	}
	p.shown = time.Now()
	text := Escape(fmt.Sprintf(format, args...))
	if !p.style.Terminal {
		fmt.Fprintln(p.to, text)
		return
	}
	fmt.Fprintf(p.to, "\r%s%s", text, strings.Repeat(" ", max(0, p.wide-Visible(text))))
	p.wide = max(p.wide, Visible(text))
}

func (p *Progress) due() bool {
	if p.style.Terminal {
		return time.Since(p.shown) >= 100*time.Millisecond
	}
	return p.Every > 0 && time.Since(p.shown) >= p.Every
}

// Done clears the line, so that the result stands alone.
func (p *Progress) Done() {
	if p.wide > 0 {
		fmt.Fprintf(p.to, "\r%s\r", strings.Repeat(" ", p.wide))
		p.wide = 0
	}
}

// TimeLeft says how long the rest will take at the speed since began; "" while
// that cannot be estimated.
func TimeLeft(began time.Time, done, total int64) string {
	elapsed := time.Since(began)
	if done <= 0 || done >= total || elapsed < time.Second {
		return ""
	}
	rest := time.Duration(float64(elapsed) / float64(done) * float64(total-done))
	switch {
	case rest < 90*time.Second:
		return fmt.Sprintf(", about %.0f s left", rest.Seconds())
	case rest < 90*time.Minute:
		return fmt.Sprintf(", about %.0f min left", rest.Minutes())
	}
	return fmt.Sprintf(", about %.1f h left", rest.Hours())
}
