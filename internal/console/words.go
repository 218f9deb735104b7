package console

import (
	"encoding/base64"
	"fmt"
	"html/template"
	"math"
	"net/url"
	"strconv"
	"strings"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

// words are what templates call.
var words = template.FuncMap{
	"icon": icon, "bytes": bytesText, "count": countText, "short": shortCount, "age": ageText, "clock": clockText, "dash": dash,
	"stamp": func(t ckpt.Time) int64 { return t.UnixMilli() }, "iso": func(t ckpt.Time) string { return t.String() },
	"kind": kindWord, "pack": pack, "status": statusOf, "mark": kindMark, "percent": percentOf,
	"cut":  func(n int, s string) string { return firstLine(s, n) },
	"list": func(v ...any) []any { return v }, "dollars": dollars, "seg": url.PathEscape, "query": url.QueryEscape,
	"bar": bar, "share": percent, "slice8": func(s string) string { return s[:min(8, len(s))] },
	"plural": func(n int, one string) string { return plural(n, one) }, "long": longClock,
}

// bytesText is a size as people read it.
func bytesText(n int64) string {
	f := float64(n)
	for _, unit := range []string{"B", "kB", "MB", "GB", "TB"} {
		if f < 1000 || unit == "TB" {
			if unit == "B" || f >= 100 {
				return fmt.Sprintf("%.0f %s", f, unit)
			}
			return fmt.Sprintf("%.1f %s", f, unit)
		}
		f /= 1000
	}
	return ""
}

// countText writes thousands apart.
func countText(n any) string {
	text := fmt.Sprint(n)
	sign := ""
	if strings.HasPrefix(text, "-") {
		sign, text = "-", text[1:]
	}
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "\u202f" + text[i:]
	}
	return sign + text
}

// shortCount is a number that need not be exact.
func shortCount(n int64) string {
	switch {
	case n < 10_000:
		return countText(n)
	case n < 1_000_000:
		return fmt.Sprintf("%.0f k", float64(n)/1e3)
	}
	return fmt.Sprintf("%.2f M", float64(n)/1e6)
}

// ageText is a time between two moments. The script writes it in the same way.
func ageText(d time.Duration) string {
	s := int64(max(d, 0) / time.Second)
	switch {
	case s < 60:
		return fmt.Sprintf("%d s", s)
	case s < 3600:
		return fmt.Sprintf("%d min", s/60)
	case s < 48*3600:
		return fmt.Sprintf("%d h %02d min", s/3600, s%3600/60)
	}
	return fmt.Sprintf("%d days", s/86400)
}

// zone is where the console runs; times are local.
var zone = time.Local

func clockText(t ckpt.Time) string {
	if t.IsZero() {
		return "—"
	}
	return t.In(zone).Format("15:04:05")
}

// longClock has the day where it is not today's.
func longClock(now, t ckpt.Time) string {
	if t.IsZero() {
		return "—"
	}
	local := t.In(zone)
	if local.Format(time.DateOnly) == now.In(zone).Format(time.DateOnly) {
		return local.Format("15:04:05")
	}
	return local.Format("2 Jan 15:04")
}

func dash(s string) string { return strings.ReplaceAll(s, "_", "-") }

func kindWord(k ckpt.Kind) string {
	if k == ckpt.KindPreOperation {
		return "before risk"
	}
	return string(k)
}

func percent(f float64) string { return strconv.Itoa(int(math.Round(f*100))) + "\u202f%" }

func dollars(f float64) string { return fmt.Sprintf("$%.2f", f) }

// pack carries a text through a form or an address as it is, whatever is in it.
func pack(s string) string { return base64.RawURLEncoding.EncodeToString([]byte(s)) }

func unpack(s string) string {
	b, _ := base64.RawURLEncoding.DecodeString(s)
	return string(b)
}

// badge is a status as a word with a shape.
type badge struct{ Class, Icon, Word string }

func statusOf(s ckpt.RunStatus) badge {
	switch s {
	case ckpt.RunRunning:
		return badge{"live", "live", "running"}
	case ckpt.RunStarting:
		return badge{"", "play", "starting"}
	case ckpt.RunCompleted:
		return badge{"", "done", "completed"}
	case ckpt.RunFailed:
		return badge{"crit", "fail", "failed"}
	case ckpt.RunInterrupted:
		return badge{"crit", "lost", "interrupted"}
	case ckpt.RunTimedOut:
		return badge{"crit", "lost", "timed out"}
	case ckpt.RunSuspended:
		return badge{"", "pause", "suspended"}
	case ckpt.RunAwaitingContinuation:
		return badge{"", "pause", "awaiting"}
	}
	return badge{"", "done", dash(string(s))}
}

// icons are drawn by hand; each is a shape that is told without its color.
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

func icon(name string) template.HTML {
	return template.HTML(`<svg width="14" height="14" viewBox="0 0 14 14" aria-hidden="true">` + icons[name] + `</svg>`) //nolint:gosec // constants
}

// kindMark is the mark of a kind of checkpoints, to stand in a text.
func kindMark(k ckpt.Kind, class string) template.HTML {
	s := &svg{}
	s.raw(`<svg width="14" height="14" viewBox="-7 -7 14 14" aria-hidden="true">`)
	s.checkpoint(k, markClass(class), 4.5)
	s.raw(`</svg>`)
	return s.html()
}

// markClass lets in the classes of marks only.
func markClass(s string) string {
	if s == "sel" || s == "sus" {
		return s
	}
	return ""
}

func plural(n int, one string) string {
	if n == 1 {
		return "1 " + one
	}
	return countText(n) + " " + one + "s"
}

// percentOf is percent for templates, which hand over pointers.
func percentOf(f *float64) string { return percent(*f) }
