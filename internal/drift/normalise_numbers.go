package drift

import (
	"bytes"
	"strings"
)

// numberLen is the length of the plain number that b begins with, 0 where a
// word goes on.
func numberLen(b []byte) int {
	n := digits(b)
	if n+1 < len(b) && b[n] == '.' && isDigit(b[n+1]) {
		n += 1 + digits(b[n+1:])
	}
	if n == 0 || !ends(b, n) {
		return 0
	}
	return n
}

// durationLen is the length of the duration that b begins with, or 0: numbers
// with units, joined like 1m30s or one with a space like 1.5 seconds.
func durationLen(b []byte) int {
	n, parts := 0, 0
	for {
		number := digits(b[n:])
		if number == 0 {
			break
		}
		if at := n + number; at+1 < len(b) && b[at] == '.' && isDigit(b[at+1]) {
			number += 1 + digits(b[at+1:])
		}
		unit := shortUnit(b[n+number:])
		if unit == 0 {
			break
		}
		n += number + unit
		parts++
	}
	if n > 0 && ends(b, n) {
		// 5m alone may be metres or millions.
		if last := b[n-1]; parts > 1 || last == 's' {
			return n
		}
		return 0
	}
	return spacedDuration(b)
}

// shortUnit is the length of the unit of time that b begins with, or 0.
func shortUnit(b []byte) int {
	for _, unit := range []string{"ns", "us", "µs", "μs", "ms", "s", "m", "h", "d"} {
		if bytes.HasPrefix(b, []byte(unit)) && (ends(b, len(unit)) || isDigit(b[len(unit)])) {
			return len(unit)
		}
	}
	return 0
}

// spacedDuration is the length of a number, a space and a unit of time, or 0.
func spacedDuration(b []byte) int {
	n := numberLen(b)
	if n == 0 || n+1 >= len(b) || b[n] != ' ' || !isLetter(b[n+1]) && b[n+1] < 0x80 {
		return 0
	}
	unit := wordLen(b[n+1:])
	switch string(b[n+1 : n+1+unit]) {
	case "ns", "us", "µs", "μs", "ms", "s", "sec", "secs", "second", "seconds", "min", "mins", "minute", "minutes",
		"hour", "hours", "milliseconds", "microseconds", "nanoseconds", "msec":
		return n + 1 + unit
	}
	return 0
}

// isEpoch says whether a number may be seconds since 1970 in the years 2014 to
// 2036, or the thousandths, millionths or billionths of them.
func isEpoch(b []byte) bool {
	switch digits(b) {
	case 10, 13, 16, 19:
	default:
		return false
	}
	return b[0] == '1' && b[1] >= '4' || b[0] == '2' && b[1] == '0'
}

var wordProcess = []byte("process")

func isPIDName(name []byte) bool {
	switch strings.ToLower(string(name)) {
	case "pid", "ppid", "tid", "process_id", "process-id", "processid":
		return true
	}
	return len(name) > 4 && (hasSuffix(name, "_pid") || hasSuffix(name, "-pid"))
}

func isDurationName(name []byte) bool {
	switch strings.ToLower(string(name)) {
	case "duration", "elapsed", "took", "latency", "uptime":
		return true
	}
	for _, suffix := range []string{"_ms", "_us", "_ns", "_secs", "_seconds", "_sec", "_duration", "_elapsed", "_latency", "duration_s", "elapsed_s"} {
		if hasSuffix(name, suffix) {
			return true
		}
	}
	return false
}

func isTimeName(name []byte) bool {
	switch strings.ToLower(string(name)) {
	case "timestamp", "ts", "epoch", "mtime", "ctime", "atime":
		return true
	}
	for _, suffix := range []string{"_at", "_ts", "_timestamp", "_epoch"} {
		if hasSuffix(name, suffix) {
			return true
		}
	}
	return false
}

// isSizeName says whether a name is of something counted, so that a number of
// ten digits is no time.
func isSizeName(name []byte) bool {
	lower := strings.ToLower(string(name))
	for _, part := range []string{"byte", "size", "count", "total", "offset", "length", "position", "id"} {
		if strings.Contains(lower, part) {
			return true
		}
	}
	return false
}

// isShare says whether a number is so much of something.
func isShare(after []byte) bool {
	return len(after) > 0 && (after[0] == '/' || after[0] == '%') || bytes.HasPrefix(after, []byte(" of ")) || bytes.HasPrefix(after, []byte(" %"))
}

// isUnit says whether a number is of something: bytes, rows, …
func isUnit(after []byte) bool {
	return len(after) > 1 && after[0] == ' ' && isLetter(after[1])
}

func hasSuffix(name []byte, suffix string) bool {
	return len(name) > len(suffix) && strings.EqualFold(string(name[len(name)-len(suffix):]), suffix)
}
