package main

import (
	"fmt"
	"strings"
	"time"
)

// progress shows how far long work is, on standard error. Where that is no
// terminal nothing is shown, so that scripts and logs stay clean, unless every
// says after how long a line is due.
type progress struct {
	app   *app
	what  string
	every time.Duration // between two lines where nobody sits at a terminal; 0 for none
	shown time.Time
	wide  int
}

func (a *app) progress(what string) *progress {
	p := &progress{app: a, what: what}
	if !a.err.terminal {
		p.shown = time.Now() // what is quick needs no line
	}
	return p
}

// step is shown ten times a second at most. A total of 0 means that nobody knows it.
func (p *progress) step(done, total int64) {
	if total > 0 {
		p.say("%s %d %%", p.what, min(100, done*100/total))
		return
	}
	p.say("%s %d", p.what, done)
}

func (p *progress) say(format string, args ...any) {
	if !p.due() {
		return
	}
	p.shown = time.Now()
	text := fmt.Sprintf(format, args...)
	if !p.app.err.terminal {
		p.app.tell("%s", text)
		return
	}
	fmt.Fprintf(p.app.stderr, "\r%s%s", text, strings.Repeat(" ", max(0, p.wide-visible(text))))
	p.wide = max(p.wide, visible(text))
}

func (p *progress) due() bool {
	if p.app.err.terminal {
		return time.Since(p.shown) >= 100*time.Millisecond
	}
	return p.every > 0 && time.Since(p.shown) >= p.every
}

// done wipes the line, so that the result stands alone.
func (p *progress) done() {
	if p.wide > 0 {
		fmt.Fprintf(p.app.stderr, "\r%s\r", strings.Repeat(" ", p.wide))
		p.wide = 0
	}
}

// left is how long the rest takes, if it goes on as it went since began; ""
// while nobody can say.
func left(began time.Time, done, total int64) string {
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
