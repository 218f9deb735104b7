package main

import (
	"fmt"
	"strings"
	"time"
)

// progress shows how far long work is, on standard error and only on a
// terminal: scripts and logs stay clean.
type progress struct {
	app   *app
	what  string
	shown time.Time
	wide  int
}

func (a *app) progress(what string) *progress { return &progress{app: a, what: what} }

// step is shown ten times a second at most. A total of 0 means that nobody knows it.
func (p *progress) step(done, total int64) {
	if total > 0 {
		p.say("%s %d %%", p.what, min(100, done*100/total))
		return
	}
	p.say("%s %d", p.what, done)
}

func (p *progress) say(format string, args ...any) {
	if !p.app.err.terminal || time.Since(p.shown) < 100*time.Millisecond {
		return
	}
	p.shown = time.Now()
	text := fmt.Sprintf(format, args...)
	fmt.Fprintf(p.app.stderr, "\r%s%s", text, strings.Repeat(" ", max(0, p.wide-len(text))))
	p.wide = max(p.wide, len(text))
}

// done wipes the line, so that the result stands alone.
func (p *progress) done() {
	if p.wide > 0 {
		fmt.Fprintf(p.app.stderr, "\r%s\r", strings.Repeat(" ", p.wide))
	}
}
