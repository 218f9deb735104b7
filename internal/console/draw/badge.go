package draw

import (
	"html/template"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

// Badge is a status as a word with a shape.
type Badge struct{ Class, Icon, Word string }

// StatusBadge shows the status of a run.
func StatusBadge(s ckpt.RunStatus) Badge {
	switch s {
	case ckpt.RunRunning:
		return Badge{"live", "live", "running"}
	case ckpt.RunStarting:
		return Badge{"", "play", "starting"}
	case ckpt.RunCompleted:
		return Badge{"", "done", "completed"}
	case ckpt.RunFailed:
		return Badge{"crit", "fail", "failed"}
	case ckpt.RunInterrupted:
		return Badge{"crit", "lost", "interrupted"}
	case ckpt.RunTimedOut:
		return Badge{"crit", "lost", "timed out"}
	case ckpt.RunSuspended:
		return Badge{"", "pause", "suspended"}
	case ckpt.RunAwaitingContinuation:
		return Badge{"", "pause", "awaiting"}
	}
	return Badge{"", "done", Dashes(string(s))}
}

// SeverityBadge shows the severity of a finding.
func SeverityBadge(s ckpt.Severity) Badge {
	if s == ckpt.SeverityCritical {
		return Badge{"crit", "crit", string(s)}
	}
	return Badge{"warn", "warn", string(s)}
}

// icons are drawn by hand. Each is a shape that is recognizable without its color.
var icons = map[string]string{
	"crit": `<path d="M7 1 13 12.5H1Z" fill="currentColor"/><path class="hole" d="M7 5v3.5M7 10v1"/>`,
	"warn": `<path d="M7 1.8 12.6 12H1.4Z" fill="none" stroke="currentColor" stroke-width="1.5"/>`,
	"ask": `<circle cx="7" cy="7" r="6" fill="currentColor"/>` +
		`<path class="hole" d="M5.2 5.4a1.8 1.8 0 1 1 2.6 1.7c-.6.3-.8.6-.8 1.2M7 10v1"/>`,
	"unc": `<path d="M7 .8 13.2 7 7 13.2.8 7Z" fill="none" stroke="currentColor" stroke-width="1.5" stroke-dasharray="2.5 1.5"/>` +
		`<path d="M7 4.2v3.6M7 9v1" stroke="currentColor" stroke-width="1.4"/>`,
	"lost": `<circle cx="7" cy="7" r="5.6" fill="none" stroke="currentColor" stroke-width="1.5"/>` +
		`<path d="m4.5 4.5 5 5m0-5-5 5" stroke="currentColor" stroke-width="1.5"/>`,
	"live": `<circle class="beat" cx="7" cy="7" r="3.5" fill="currentColor"/>` +
		`<circle cx="7" cy="7" r="5.8" fill="none" stroke="currentColor" stroke-width="1"/>`,
	"done": `<path d="m2.5 7.5 3 3 6-7" fill="none" stroke="currentColor" stroke-width="1.8"/>`,
	"fail": `<path d="m3 3 8 8m0-8-8 8" stroke="currentColor" stroke-width="1.8"/>`,
	"doc": `<rect x="2" y="1.5" width="10" height="11" rx="1.5" fill="none" stroke="currentColor" stroke-width="1.4"/>` +
		`<path d="M4.5 7h5M7 4.5v5" stroke="currentColor" stroke-width="1.4"/>`,
	"load":  `<path d="M7 1v8m-3-3 3 3 3-3M2 12.5h10" fill="none" stroke="currentColor" stroke-width="1.5"/>`,
	"play":  `<path d="M3.5 2v10l8-5Z" fill="currentColor"/>`,
	"pause": `<path d="M4 2.5v9M10 2.5v9" stroke="currentColor" stroke-width="2.2"/>`,
}

// Icon returns the icon with this name.
func Icon(name string) template.HTML {
	return template.HTML(`<svg width="14" height="14" viewBox="0 0 14 14" aria-hidden="true">` + icons[name] + `</svg>`) //nolint:gosec // constants
}

// KindMark returns the mark of a kind of checkpoints, for use in a text.
func KindMark(k ckpt.Kind, class string) template.HTML {
	s := &svg{}
	s.raw(`<svg width="14" height="14" viewBox="-7 -7 14 14" aria-hidden="true">`)
	s.checkpoint(k, markClass(class), 4.5)
	s.raw(`</svg>`)
	return s.html()
}

// markClass allows only the classes of marks.
func markClass(s string) string {
	if s == "sel" || s == "sus" {
		return s
	}
	return ""
}
