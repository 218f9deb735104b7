package phrase

import (
	"fmt"
	"math"
	"strconv"
)

// Count returns a number and what is counted: "1 step", "3 steps".
func Count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return strconv.Itoa(n) + " " + what + "s"
}

// Times returns a number of times in words.
func Times(n int) string {
	switch n {
	case 1:
		return "once"
	case 2:
		return "twice"
	}
	return strconv.Itoa(n) + " times"
}

// Figure returns a number with its significant digits.
func Figure(x float64) string {
	if x == math.Trunc(x) && math.Abs(x) < 1e15 {
		return strconv.FormatFloat(x, 'f', 0, 64)
	}
	return strconv.FormatFloat(x, 'g', 4, 64)
}

// Article returns the name of a JSON type with its article.
func Article(kind string) string {
	switch kind {
	case "null":
		return "null"
	case "object", "array", "integer":
		return "an " + kind
	}
	return "a " + kind
}

// Cut shortens a text for a message.
func Cut(s string) string { return CutTo(s, 60) }

// CutTo shortens a text to at most this many bytes, and marks it as cut.
func CutTo(s string, most int) string {
	if len(s) <= most {
		return s
	}
	end := most
	for end > 0 && s[end]&0xC0 == 0x80 {
		end--
	}
	return s[:end] + "…"
}

// Bytes returns a size for people.
func Bytes(n int64) string {
	switch {
	case n < 10_000:
		return Count(int(n), "byte")
	case n < 1_000_000:
		return fmt.Sprintf("%.1f kB", float64(n)/1000)
	case n < 1_000_000_000:
		return fmt.Sprintf("%.1f MB", float64(n)/1e6)
	}
	return fmt.Sprintf("%.1f GB", float64(n)/1e9)
}
