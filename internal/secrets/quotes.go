package secrets

import (
	"bytes"
	"unicode/utf8"
)

// nextQuote returns the place of the next quote from i on, in the string that begins at
// from, and whether the quote is escaped. If there is none, it returns the end of s.
func nextQuote(s []byte, i, from int) (at int, escaped bool) {
	j := bytes.IndexByte(s[i:], '"')
	if j < 0 {
		return len(s), false
	}
	at = i + j
	slashes := 0
	for at-1-slashes >= from && s[at-1-slashes] == '\\' {
		slashes++
	}
	return at, slashes%2 == 1
}

// endOfString returns the place of the closing quote of the string that begins at from.
func endOfString(s []byte, from int) int {
	for i := from; ; i++ {
		var escaped bool
		if i, escaped = nextQuote(s, i, from); !escaped {
			return i
		}
	}
}

// escaped returns the character of the escape \uXXXX at a place.
func escaped(text []byte, i int) (rune, bool) {
	if i+6 > len(text) || text[i+1] != 'u' {
		return 0, false
	}
	var c rune
	for _, x := range text[i+2 : i+6] {
		switch {
		case x >= '0' && x <= '9':
			x -= '0'
		case x >= 'a' && x <= 'f':
			x -= 'a' - 10
		case x >= 'A' && x <= 'F':
			x -= 'A' - 10
		default:
			return 0, false
		}
		c = c<<4 | rune(x)
	}
	return c, true
}

// undo returns a string without its escapes. For each byte of the result, and for its
// end, it returns the place in text.
func undo(text []byte, begin, end int) (plain []byte, places []int) {
	plain, places = make([]byte, 0, end-begin), make([]int, 0, end-begin+1)
	for i := begin; i < end; {
		before, next := len(plain), i+1
		switch {
		case text[i] != '\\' || i+1 >= end:
			plain = append(plain, text[i])
		case text[i+1] == 'u':
			c, _ := escaped(text, i)
			plain = utf8.AppendRune(plain, c)
			next = i + 6
		default:
			plain = append(plain, unescaped(text[i+1]))
			next = i + 2
		}
		for range len(plain) - before {
			places = append(places, i)
		}
		i = next
	}
	return plain, append(places, end)
}

func unescaped(c byte) byte {
	switch c {
	case 'n':
		return '\n'
	case 't':
		return '\t'
	case 'r':
		return '\r'
	case 'b':
		return '\b'
	case 'f':
		return '\f'
	}
	return c
}

// undoneKey returns a key of a JSON object without its escapes.
func undoneKey(key []byte) []byte {
	if len(key) > 6*longestKey || bytes.IndexByte(key, '\\') < 0 {
		return key
	}
	plain, _ := undo(key, 0, len(key))
	return plain
}
