package term

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

// Bytes writes a size for people, with three significant digits.
func Bytes(n int64) string {
	if n < 1000 {
		return strconv.FormatInt(n, 10) + " B"
	}
	value := float64(n)
	for _, unit := range []string{"kB", "MB", "GB", "TB"} {
		value /= 1000
		if value < 999.5 || unit == "TB" {
			return Digits(value) + " " + unit
		}
	}
	return ""
}

// Digits writes a number with three significant digits.
func Digits(v float64) string {
	switch {
	case v < 9.995:
		return strconv.FormatFloat(v, 'f', 2, 64)
	case v < 99.95:
		return strconv.FormatFloat(v, 'f', 1, 64)
	}
	return strconv.FormatFloat(v, 'f', 0, 64)
}

// Millis writes a duration in milliseconds for people.
func Millis(ms float64) string { return Digits(ms) + " ms" }

// Moment writes a time in the reader's own time zone.
func Moment(t ckpt.Time) string {
	if t.IsZero() {
		return "never"
	}
	return t.Local().Format("2006-01-02 15:04:05")
}

// Ago returns how long before now a time was, in one unit.
func Ago(now, t time.Time) string {
	if t.IsZero() {
		return "never"
	}
	d := now.Sub(t)
	switch {
	case d < 2*time.Second:
		return "just now"
	case d < 2*time.Minute:
		return strconv.Itoa(int(d/time.Second)) + " s ago"
	case d < 2*time.Hour:
		return strconv.Itoa(int(d/time.Minute)) + " min ago"
	case d < 2*ckpt.Day:
		return strconv.Itoa(int(d/time.Hour)) + " h ago"
	}
	return strconv.Itoa(int(d/ckpt.Day)) + " days ago"
}

// Time returns a time for a cell of a table: how long ago it was, or the exact time if s
// is wide.
func (s *Style) Time(t ckpt.Time) string {
	if s.Wide() || t.IsZero() {
		return Moment(t)
	}
	return Ago(s.now, t.Time)
}

// Count writes a number with its noun: "1 checkpoint", "3 checkpoints".
func Count[N int | int64](n N, noun string) string {
	if n == 1 {
		return fmt.Sprintf("1 %s", noun)
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// WriteJSON writes one value as JSON, indented for people.
func WriteJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

// Words is a word of the API as a person writes it: pre operation.
func Words(word string) string { return strings.ReplaceAll(word, "_", " ") }
