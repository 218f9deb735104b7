package normalise

import "bytes"

// The marks that replace what was removed.
const (
	markTime     = "<time>"
	markDuration = "<duration>"
	markUUID     = "<uuid>"
	markPID      = "<pid>"
	markAddress  = "<address>"
	markLine     = "<line>"
)

// Text removes from a text what differs between the same answer at two times, and puts a
// mark in its place:
//
//   - timestamps: ISO 8601 and similar forms, "Nov 21 19:03", "21 Nov 2026
//     19:03:11 GMT", a clock with seconds, seconds and their fractions since
//     1970, and numbers under names like created_at;
//   - durations: 12ms, 1.5 s, 1m30s, 3 minutes, and numbers under names like
//     elapsed or duration_ms;
//   - UUIDs, process ids (pid 12, sshd[12]:), memory addresses (0x and at least
//     6 digits), the lines that a shell counts (bash: line 812:);
//   - terminal escapes and other control characters are removed without a mark,
//     and white space becomes one space or one line end.
//
// Everything else stays, because an answer can be about other numbers. A text that is
// already normalized does not change. Time and memory are linear in the size of the text.
func Text(text []byte) []byte {
	text = plain(text)
	out := make([]byte, 0, len(text))
	for i := 0; i < len(text); {
		if !IsWord(text[i]) {
			out = append(out, text[i])
			i++
			continue
		}
		n, mark := volatile(out, text[i:])
		if n > 0 {
			out = append(out, mark...)
		} else {
			n = WordLen(text[i:])
			out = append(out, text[i:i+n]...)
		}
		i += n
	}
	return out
}

// plain removes terminal escapes and control characters. It replaces white space by one
// space or one line end, and removes it at the start and the end.
func plain(text []byte) []byte {
	out := make([]byte, 0, len(text))
	gap := byte(0)
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == 0x1b:
			i += escapeLen(text[i:]) - 1
		case c == '\n' || gap != '\n' && (c == ' ' || c == '\t' || c == '\r' || c == '\v' || c == '\f'):
			gap = c
			if c != '\n' {
				gap = ' '
			}
		case c <= ' ' || c == 0x7f:
		default:
			if gap != 0 && len(out) > 0 {
				out = append(out, gap)
			}
			gap = 0
			out = append(out, c)
		}
	}
	return out
}

// maxControlString is the maximum length of a title or link in an escape: an escape that
// never ends must not swallow the text.
const maxControlString = 4096

// escapeLen returns the length of the escape at the start of b, at least 1.
func escapeLen(b []byte) int {
	if len(b) < 2 {
		return 1
	}
	switch b[1] {
	case '[': // control sequence: parameters, then one final byte
		n := 2
		for n < len(b) && b[n] >= 0x20 && b[n] <= 0x3f {
			n++
		}
		if n < len(b) && b[n] >= 0x40 && b[n] <= 0x7e {
			return n + 1
		}
		return 1
	case ']', 'P', 'X', '^', '_': // control string: to BEL or ESC \
		for n := 2; n < len(b) && n < maxControlString; n++ {
			if b[n] == 0x07 {
				return n + 1
			}
			if b[n] == 0x1b {
				if n+1 < len(b) && b[n+1] == '\\' {
					return n + 2
				}
				return n
			}
		}
		return 1
	case '(', ')': // choice of a character set
		if len(b) > 2 && b[2] >= 0x30 && b[2] <= 0x7e {
			return 3
		}
		return 1
	}
	if b[1] >= 0x30 && b[1] <= 0x7e {
		return 2
	}
	return 1
}

// volatile returns how many bytes to remove at the start of b, which begins with a word,
// and the mark that replaces them. before is the text before b. 0 means nothing.
func volatile(before, b []byte) (int, string) {
	if IsLetter(b[0]) {
		if n := dateInWords(b); n > 0 {
			return n, markTime
		}
		if isHex(b[0]) {
			return uuidLen(b), markUUID
		}
		return 0, ""
	}
	if b[0] == '_' || len(before) > 0 && isJoin(before, b) {
		return 0, ""
	}
	if n := uuidLen(b); n > 0 {
		return n, markUUID
	}
	if n := addressLen(b); n > 0 {
		return n, markAddress
	}
	if n := stampLen(b); n > 0 {
		return n, markTime
	}
	if n := durationLen(b); n > 0 {
		return n, markDuration
	}
	return numberInContext(before, b)
}

// isJoin reports whether the number at the start of b continues the text before it, like
// the 5 of 1.5 or of 1:5. Such a number is not a separate word.
func isJoin(before, b []byte) bool {
	n := len(before)
	switch before[n-1] {
	case '.', ',', ':':
		return n > 1 && IsDigit(before[n-2])
	}
	return false
}

// shellLine is the start of a shell's error message. A shell that stays open counts its
// lines continuously, so the same complaint has another number each time.
var shellLine = []byte("sh: line ")

// numberInContext removes a number if the name before it requires that.
func numberInContext(before, b []byte) (int, string) {
	n := numberLen(b)
	if n == 0 {
		return 0, ""
	}
	if bytes.HasSuffix(before, shellLine) && n < len(b) && b[n] == ':' {
		return n, markLine
	}
	name, opened := nameBefore(before)
	if opened { // as in sshd[1234]:
		if n+1 < len(b) && b[n] == ']' && b[n+1] == ':' && len(name) > 0 {
			return n, markPID
		}
		return 0, ""
	}
	switch means := meaningOf(name); {
	case means == meansPID, means == meansProcess && n >= 3 && !isShare(b[n:]):
		return n, markPID
	case means == meansDuration:
		return n, markDuration
	case means == meansTime || isEpoch(b[:n]) && means != meansSize && !isShare(b[n:]) && !isUnit(b[n:]):
		return n, markTime
	}
	return 0, ""
}

// nameBefore returns the word before a number. Between them can be at most a few of the
// signs that join names and values. opened is true if the sign is one bracket.
func nameBefore(before []byte) (name []byte, opened bool) {
	n := len(before)
	if n > 1 && before[n-1] == '[' && IsWord(before[n-2]) {
		n--
		opened = true
	}
	for signs := 0; !opened && n > 0 && signs < 4 && bytes.IndexByte([]byte(` ":='#(`), before[n-1]) >= 0; signs++ {
		n--
	}
	end := n
	for n > 0 && end-n <= maxName && (IsWord(before[n-1]) || before[n-1] == '-') {
		n--
	}
	return before[n:end], opened
}
