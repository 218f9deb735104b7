package normalise

// IsWord says whether a byte is part of a word. Bytes beyond ASCII are.
func IsWord(c byte) bool { return IsLetter(c) || IsDigit(c) || c == '_' || c >= 0x80 }

// IsLetter says whether a byte is a letter of ASCII.
func IsLetter(c byte) bool { return c|0x20 >= 'a' && c|0x20 <= 'z' }

// IsDigit says whether a byte is a digit.
func IsDigit(c byte) bool { return c >= '0' && c <= '9' }

func isHex(c byte) bool { return IsDigit(c) || c|0x20 >= 'a' && c|0x20 <= 'f' }

// WordLen is the length of the word that b begins with, at least 1.
func WordLen(b []byte) int {
	n := 1
	for n < len(b) && IsWord(b[n]) {
		n++
	}
	return n
}

// Digits is the number of digits that b begins with.
func Digits(b []byte) int {
	n := 0
	for n < len(b) && IsDigit(b[n]) {
		n++
	}
	return n
}

// ends says whether a token of n bytes ends there: no word goes on.
func ends(b []byte, n int) bool { return n >= len(b) || !IsWord(b[n]) }
