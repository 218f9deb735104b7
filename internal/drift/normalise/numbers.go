package normalise

import "bytes"

// numberLen returns the length of the plain number at the start of b, 0 if a word
// continues after it.
func numberLen(b []byte) int {
	n := Digits(b)
	if n+1 < len(b) && b[n] == '.' && IsDigit(b[n+1]) {
		n += 1 + Digits(b[n+1:])
	}
	if n == 0 || !ends(b, n) {
		return 0
	}
	return n
}

// durationLen returns the length of the duration at the start of b, or 0: numbers with
// units, joined like 1m30s or one with a space like 1.5 seconds.
func durationLen(b []byte) int {
	n, parts := 0, 0
	for {
		number := Digits(b[n:])
		if number == 0 {
			break
		}
		if at := n + number; at+1 < len(b) && b[at] == '.' && IsDigit(b[at+1]) {
			number += 1 + Digits(b[at+1:])
		}
		unit := shortUnit(b[n+number:])
		if unit == 0 {
			break
		}
		n += number + unit
		parts++
	}
	if n > 0 && ends(b, n) {
		// 5m alone can be meters or millions.
		if last := b[n-1]; parts > 1 || last == 's' {
			return n
		}
		return 0
	}
	return spacedDuration(b)
}

// shortUnit returns the length of the unit of time at the start of b, or 0.
func shortUnit(b []byte) int {
	if len(b) == 0 {
		return 0
	}
	n := 1
	switch b[0] {
	case 's', 'h', 'd':
	case 'm':
		if len(b) > 1 && b[1] == 's' {
			n = 2
		}
	case 'n', 'u':
		n = 2
	case 0xc2, 0xce: // both signs for micro
		n = 3
		if len(b) < 3 || b[1] != 0xb5 && b[1] != 0xbc {
			return 0
		}
	default:
		return 0
	}
	if n > len(b) || n > 1 && b[n-1] != 's' || !ends(b, n) && !IsDigit(b[n]) {
		return 0
	}
	return n
}

// spacedDuration returns the length of a number, a space and a unit of time, or 0.
func spacedDuration(b []byte) int {
	n := numberLen(b)
	if n == 0 || n+1 >= len(b) || b[n] != ' ' || !IsLetter(b[n+1]) && b[n+1] < 0x80 {
		return 0
	}
	unit := WordLen(b[n+1:])
	switch string(b[n+1 : n+1+unit]) {
	case "ns", "us", "µs", "μs", "ms", "s", "sec", "secs", "second", "seconds", "min", "mins", "minute", "minutes",
		"hour", "hours", "milliseconds", "microseconds", "nanoseconds", "msec":
		return n + 1 + unit
	}
	return 0
}

// isEpoch reports whether a number can be seconds since 1970 in the years 2014 to 2036,
// or milliseconds, microseconds or nanoseconds.
func isEpoch(b []byte) bool {
	switch Digits(b) {
	case 10, 13, 16, 19:
	default:
		return false
	}
	return b[0] == '1' && b[1] >= '4' || b[0] == '2' && b[1] == '0'
}

// meaning is the meaning of a number's name.
type meaning int

const (
	meansNothing meaning = iota
	meansPID
	meansProcess // a process id, or the progress of a process
	meansDuration
	meansTime
	meansSize // a count: ten digits of it are no time
)

// maxName is the maximum length of a number's name.
const maxName = 40

// meaningOf returns the meaning of a name. It ignores case.
func meaningOf(name []byte) meaning {
	if len(name) == 0 || len(name) > maxName {
		return meansNothing
	}
	var space [maxName]byte
	lower := space[:len(name)]
	for i, c := range name {
		if c >= 'A' && c <= 'Z' {
			c |= 0x20
		}
		lower[i] = c
	}
	switch string(lower) {
	case "pid", "ppid", "tid", "process_id", "process-id", "processid":
		return meansPID
	case "process":
		return meansProcess
	case "duration", "elapsed", "took", "latency", "uptime":
		return meansDuration
	case "timestamp", "ts", "epoch", "mtime", "ctime", "atime":
		return meansTime
	}
	for _, s := range suffixes {
		if len(lower) > len(s.text) && bytes.HasSuffix(lower, s.text) {
			return s.means
		}
	}
	for _, part := range sizeWords {
		if bytes.Contains(lower, part) {
			return meansSize
		}
	}
	return meansNothing
}

// suffixes are the ends of names of numbers that change with time.
var suffixes = []struct {
	text  []byte
	means meaning
}{
	{[]byte("_pid"), meansPID}, {[]byte("-pid"), meansPID},
	{[]byte("_ms"), meansDuration}, {[]byte("_us"), meansDuration}, {[]byte("_ns"), meansDuration}, {[]byte("_sec"), meansDuration},
	{[]byte("_secs"), meansDuration}, {[]byte("_seconds"), meansDuration}, {[]byte("_duration"), meansDuration},
	{[]byte("_elapsed"), meansDuration}, {[]byte("_latency"), meansDuration}, {[]byte("duration_s"), meansDuration},
	{[]byte("elapsed_s"), meansDuration},
	{[]byte("_at"), meansTime}, {[]byte("_ts"), meansTime}, {[]byte("_timestamp"), meansTime}, {[]byte("_epoch"), meansTime},
}

var sizeWords = [][]byte{[]byte("byte"), []byte("size"), []byte("count"), []byte("total"), []byte("offset"),
	[]byte("length"), []byte("position"), []byte("id")}

// isShare reports whether a number is a part of a total.
func isShare(after []byte) bool {
	return len(after) > 0 && (after[0] == '/' || after[0] == '%') || bytes.HasPrefix(after, []byte(" of ")) || bytes.HasPrefix(after, []byte(" %"))
}

// isUnit reports whether a unit follows a number: bytes, rows, …
func isUnit(after []byte) bool {
	return len(after) > 1 && after[0] == ' ' && IsLetter(after[1])
}
