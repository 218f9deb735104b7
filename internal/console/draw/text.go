package draw

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

// Bytes returns a size for people.
func Bytes(n int64) string {
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

// Count writes a number with separated thousands.
func Count(n any) string {
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

// ShortCount returns a number that need not be exact.
func ShortCount(n int64) string {
	switch {
	case n < 10_000:
		return Count(n)
	case n < 1_000_000:
		return fmt.Sprintf("%.0f k", float64(n)/1e3)
	}
	return fmt.Sprintf("%.2f M", float64(n)/1e6)
}

// Age returns a length of time for people. The script writes it in the same way.
func Age(d time.Duration) string {
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

// Zone is the time zone of the console; times are local.
var Zone = time.Local

// Clock returns the time of day.
func Clock(t ckpt.Time) string {
	if t.IsZero() {
		return "—"
	}
	return t.In(Zone).Format("15:04:05")
}

// LongClock includes the day if it is not today.
func LongClock(now, t ckpt.Time) string {
	if t.IsZero() {
		return "—"
	}
	local := t.In(Zone)
	if local.Format(time.DateOnly) == now.In(Zone).Format(time.DateOnly) {
		return local.Format("15:04:05")
	}
	return local.Format("2 Jan 15:04")
}

// Dashes writes a name of the API as a word.
func Dashes(s string) string { return strings.ReplaceAll(s, "_", "-") }

// RuleWords writes the name of a rule of drift as words.
func RuleWords(rule string) string { return strings.ReplaceAll(rule, "_", " ") }

// KindWord names a kind of checkpoints.
func KindWord(k ckpt.Kind) string {
	if k == ckpt.KindPreOperation {
		return "before risk"
	}
	return string(k)
}

// Percent writes a share, 0 to 1, as percent.
func Percent(f float64) string { return strconv.Itoa(int(math.Round(f*100))) + "\u202f%" }

// Dollars returns an amount of money.
func Dollars(f float64) string { return fmt.Sprintf("$%.2f", f) }

// Plural returns a number and what is counted. one is the singular.
func Plural(n int, one string) string {
	if n == 1 {
		return "1 " + one
	}
	return Count(n) + " " + one + "s"
}

// FirstLine returns the beginning of a text, on one line.
func FirstLine(s string, most int) string {
	s = strings.Join(strings.Fields(s), " ")
	if r := []rune(s); len(r) > most {
		return string(r[:most]) + "…"
	}
	return s
}
