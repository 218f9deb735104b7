package secrets

import (
	"bytes"
	"unicode/utf8"
)

// escaped is the character of the escape \uXXXX at a place.
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

// needless says whether the escape at a place stands for a character that needs
// none and that a secret may have. Such an escape hides a secret, on purpose or
// because its writer escapes every slash.
func needless(text []byte, i int) bool {
	switch text[i+1] {
	case '/':
		return true
	case 'u':
		if i+6 > len(text) || text[i+2] != '0' || text[i+3] != '0' || text[i+4] < '2' || text[i+4] > '7' {
			return false
		}
		c, ok := escaped(text, i)
		return ok && c > ' ' && c < 0x7f && c != '<' && c != '>' && c != '&' && c != '\'' && c != '"' && c != '\\'
	}
	return false
}

// stringAround answers the string in which a place is: where it begins, and
// where its closing quote is.
func stringAround(text []byte, at int) (begin, end int) {
	begin = at
	for begin > 0 {
		quote := bytes.LastIndexByte(text[:begin], '"')
		slashes := 0
		for quote-1-slashes >= 0 && text[quote-1-slashes] == '\\' {
			slashes++
		}
		if begin = quote; slashes%2 == 0 {
			break
		}
	}
	return begin + 1, endOfString(text, max(begin+1, 0))
}

// decoded answers the secrets in a string with its escapes undone, at their
// places in the string as it is. All of them belong to the place of the escape
// by which it was looked at.
func decoded(text []byte, begin, end, at int) []hit {
	plain, places := undo(text, begin, end)
	hits := inText.find(plain, 0, len(plain), len(plain))
	for i := range hits {
		h := &hits[i]
		h.at, h.from, h.to = at, places[h.from], places[h.to]
	}
	return hits
}

// undo answers a string without its escapes, and for each of its bytes and for
// its end the place in text.
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

// undoneKey is a key of a JSON object without its escapes.
func undoneKey(key []byte) []byte {
	if len(key) > 6*longestKey || bytes.IndexByte(key, '\\') < 0 {
		return key
	}
	plain, _ := undo(key, 0, len(key))
	return plain
}
