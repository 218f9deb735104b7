package normalise

import "bytes"

// uuidLen returns the length of the UUID at the start of b, or 0.
func uuidLen(b []byte) int {
	const length = 36
	if len(b) < length || !ends(b, length) {
		return 0
	}
	for i, c := range b[:length] {
		if i == 8 || i == 13 || i == 18 || i == 23 {
			if c != '-' {
				return 0
			}
		} else if !isHex(c) {
			return 0
		}
	}
	return length
}

// addressLen returns the length of the memory address at the start of b, or 0. Shorter
// hexadecimal numbers are flags and codes.
func addressLen(b []byte) int {
	if len(b) < 8 || b[0] != '0' || b[1]|0x20 != 'x' {
		return 0
	}
	n := 2
	for n < len(b) && isHex(b[n]) {
		n++
	}
	if n < 8 || n > 18 || !ends(b, n) {
		return 0
	}
	return n
}

// clockLen returns the length of hh:mm:ss with or without a fraction, or 0. If short is
// true, hh:mm is enough.
func clockLen(b []byte, short bool) int {
	n := Digits(b)
	if n < 1 || n > 2 || !twoDigits(b, n) {
		return 0
	}
	n += 3
	if !twoDigits(b, n) {
		if short && ends(b, n) {
			return n
		}
		return 0
	}
	n += 3
	if n+1 < len(b) && (b[n] == '.' || b[n] == ',') && IsDigit(b[n+1]) {
		n += 1 + Digits(b[n+1:])
	}
	if n+1 < len(b) && b[n] == ':' && IsDigit(b[n+1]) {
		return 0 // a hardware address, or a version
	}
	return n
}

// twoDigits reports whether ":dd" is at n, without a third digit.
func twoDigits(b []byte, n int) bool {
	return n < len(b) && b[n] == ':' && Digits(b[n+1:]) == 2
}

// zoneLen returns the length of a time zone after a clock, 0 for none.
func zoneLen(b []byte) int {
	n := 0
	if n < len(b) && b[n] == ' ' {
		n++
	}
	rest := b[n:]
	switch {
	case len(rest) > 0 && rest[0]|0x20 == 'z' && ends(rest, 1):
		return n + 1
	case len(rest) > 2 && (rest[0] == '+' || rest[0] == '-') && Digits(rest[1:]) == 4 && ends(rest, 5):
		return n + 5
	case len(rest) > 5 && (rest[0] == '+' || rest[0] == '-') && Digits(rest[1:]) == 2 && twoDigits(rest, 3):
		return n + 6
	}
	for _, name := range []string{"UTC", "GMT", "CEST", "CET", "EST", "EDT", "PST", "PDT"} {
		if bytes.HasPrefix(rest, []byte(name)) && ends(rest, len(name)) {
			return n + len(name)
		}
	}
	return 0
}

// stampLen returns the length of the time at the start of b, which begins with a digit,
// or 0.
func stampLen(b []byte) int {
	n := dateLen(b)
	switch {
	case n > 0 && n < len(b) && (b[n]|0x20 == 't' || b[n] == ' ' || b[n] == ':'):
		if clock := clockLen(b[n+1:], true); clock > 0 {
			return withZone(b, n+1+clock)
		}
		if compact := Digits(b[n+1:]); b[n]|0x20 == 't' && compact == 6 {
			return withZone(b, n+1+compact)
		}
		return 0
	case n > 0:
		return 0
	}
	if n = dayMonthLen(b); n > 0 {
		return n
	}
	return withZone(b, clockLen(b, false))
}

// withZone adds the zone to a time of n bytes. It refuses a time that continues as a
// word.
func withZone(b []byte, n int) int {
	if n == 0 {
		return 0
	}
	if zone := zoneLen(b[n:]); zone > 0 {
		return n + zone
	}
	if !ends(b, n) {
		return 0
	}
	return n
}

// dateLen returns the length of 2026-11-21, 2026/11/21, 21/Nov/2026 or 20261121, or 0. A
// date alone is not removed, because the answer can be about it.
func dateLen(b []byte) int {
	n := Digits(b)
	switch {
	case n == 4 && len(b) >= 10 && (b[4] == '-' || b[4] == '/') && Digits(b[5:]) == 2 && b[7] == b[4] && Digits(b[8:]) == 2:
		return 10
	case n == 2 && len(b) >= 11 && b[2] == '/' && isMonth(b[3:]) && b[6] == '/' && Digits(b[7:]) == 4:
		return 11
	case n == 8:
		return 8
	}
	return 0
}

// dayMonthLen returns the length of "21 Nov 2026 19:03:11 GMT", or 0.
func dayMonthLen(b []byte) int {
	n := Digits(b)
	if n > 2 || len(b) < n+9 || b[n] != ' ' && b[n] != '-' || !isMonth(b[n+1:]) {
		return 0
	}
	sign := b[n]
	n += 4
	if n < len(b) && b[n] == sign {
		if year := Digits(b[n+1:]); year == 4 || year == 2 && sign == '-' {
			n += 1 + year
		}
	}
	return clockAfter(b, n)
}

// clockAfter returns the length of a date of n bytes with the clock that follows it, its
// zone and a year; 0 without a clock.
func clockAfter(b []byte, n int) int {
	if n >= len(b) || b[n] != ' ' {
		return 0
	}
	clock := clockLen(b[n+1:], true)
	if clock == 0 {
		return 0
	}
	n = withZone(b, n+1+clock)
	if n > 0 && n+5 <= len(b) && b[n] == ' ' && Digits(b[n+1:]) == 4 && (b[n+1] == '1' || b[n+1] == '2') {
		n += 5
	}
	return n
}

// dateInWords returns the length of a time that begins with the name of a day or a month,
// or 0.
func dateInWords(b []byte) int {
	if b[0] > 'W' || len(b) < 10 || b[1]|0x20 != b[1] {
		return 0 // not exactly one capital letter
	}
	if isDay(b) {
		n := 3
		if n < len(b) && b[n] == ',' {
			n++
		}
		if n+1 >= len(b) || b[n] != ' ' {
			return 0
		}
		rest := b[n+1:]
		if more := monthDayLen(rest); more > 0 {
			return n + 1 + more
		}
		if IsDigit(rest[0]) {
			if more := dayMonthLen(rest); more > 0 {
				return n + 1 + more
			}
		}
		return 0
	}
	return monthDayLen(b)
}

// monthDayLen returns the length of "Nov 21 19:03:11 2026", or 0.
func monthDayLen(b []byte) int {
	if !isMonth(b) || len(b) < 10 || b[3] != ' ' {
		return 0
	}
	n := 4
	if b[n] == ' ' {
		n++
	}
	day := Digits(b[n:])
	if day < 1 || day > 2 {
		return 0
	}
	return clockAfter(b, n+day)
}

func isMonth(b []byte) bool {
	return len(b) > 0 && b[0] <= 'S' && isName(b, "JanFebMarAprMayJunJulAugSepOctNovDec")
}

func isDay(b []byte) bool { return isName(b, "MonTueWedThuFriSatSun") }

// isName reports whether b begins with a whole word from names, which has words of three
// letters.
func isName(b []byte, names string) bool {
	if len(b) < 3 || len(b) > 3 && IsLetter(b[3]) {
		return false
	}
	for i := 0; i < len(names); i += 3 {
		if names[i] == b[0] && names[i+1] == b[1] && names[i+2] == b[2] {
			return true
		}
	}
	return false
}
