package term

import (
	"fmt"
	"io"
	"strings"
	"time"
)

// Progress shows the progress of long work. On a terminal, it is a line that changes,
// with a bar if the total is known. Elsewhere, as in a journal or in CI, it is a line
// from time to time.
type Progress struct {
	to    io.Writer
	style *Style
	what  string
	Unit  string        // what is counted, such as checkpoints; ByBytes for bytes, "" for a percentage only
	Every time.Duration // time between two lines if there is no terminal; 0 for none
	began time.Time
	total int64 // of the current part of the work
	shown time.Time
	wide  int
}

// ByBytes is the unit of progress that is written as a size.
const ByBytes = "bytes"

// lineEvery is the time between two progress lines if there is no terminal.
const lineEvery = 5 * time.Second

// NewProgress returns a Progress on a stream with this style.
func NewProgress(to io.Writer, s *Style, what string) *Progress {
	p := &Progress{to: Raw(to), style: s, what: what, began: time.Now(), Every: lineEvery}
	if !s.Terminal {
		p.shown = p.began // quick work needs no line
	}
	return p
}

// Step shows how much of a total is done. The total 0 means that it is unknown.
func (p *Progress) Step(done, total int64) {
	if total != p.total { // another part of the work begins
		p.began, p.total = time.Now(), total
	}
	if !p.due() {
		return
	}
	rate := p.rate(done)
	if total <= 0 {
		p.Say("%s %s%s", p.what, p.amount(done), rate)
		return
	}
	done = min(done, total)
	p.Say("%s%s %d %%%s%s", p.what, p.bar(done, total), done*100/total, rate, TimeLeft(p.began, done, total))
}

// barWidth is the number of characters inside a bar.
const barWidth = 24

// bar returns the bar next to the percentage on a terminal.
func (p *Progress) bar(done, total int64) string {
	if !p.style.Terminal {
		return ""
	}
	full := int(done * barWidth / total)
	return " [" + strings.Repeat("=", full) + strings.Repeat(" ", barWidth-full) + "]"
}

func (p *Progress) amount(n int64) string {
	switch p.Unit {
	case "":
		return fmt.Sprint(n)
	case ByBytes:
		return Bytes(n)
	}
	return fmt.Sprintf("%d %s", n, p.Unit)
}

// rate returns how much is done per second; "" if it is too early to say.
func (p *Progress) rate(done int64) string {
	elapsed := time.Since(p.began)
	if p.Unit == "" || done <= 0 || elapsed < time.Second {
		return ""
	}
	return ", " + p.amount(int64(float64(done)/elapsed.Seconds())) + "/s"
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

// Done clears the line before the result.
func (p *Progress) Done() {
	if p.wide > 0 {
		fmt.Fprintf(p.to, "\r%s\r", strings.Repeat(" ", p.wide))
		p.wide = 0
	}
}

// TimeLeft returns how long the rest will take at the speed since began; "" while that
// cannot be estimated.
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
