package normalise

// IsWord reports whether a byte is part of a word. Bytes beyond ASCII are.
func IsWord(c byte) bool { return IsLetter(c) || IsDigit(c) || c == '_' || c >= 0x80 }

// IsLetter reports whether a byte is an ASCII letter.
func IsLetter(c byte) bool { return c|0x20 >= 'a' && c|0x20 <= 'z' }

// IsDigit reports whether a byte is a digit.
func IsDigit(c byte) bool { return c >= '0' && c <= '9' }

func isHex(c byte) bool { return IsDigit(c) || c|0x20 >= 'a' && c|0x20 <= 'f' }

// WordLen returns the length of the word at the start of b, at least 1.
func WordLen(b []byte) int {
	n := 1
	for n < len(b) && IsWord(b[n]) {
		n++
	}
	return n
}

// Digits returns the number of digits at the start of b.
func Digits(b []byte) int {
	n := 0
	for n < len(b) && IsDigit(b[n]) {
		n++
	}
	return n
}

// ends reports whether a token of n bytes ends there, which means that no word continues.
func ends(b []byte, n int) bool { return n >= len(b) || !IsWord(b[n]) }
