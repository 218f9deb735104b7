package secrets

import (
	"bytes"
)

// needless reports whether the escape at a place stands for a character that needs no
// escape and that a secret can contain. Such an escape hides a secret, either on
// purpose or because its writer escapes every slash.
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

// stringAround returns the string that contains a place: where it begins, and where its
// closing quote is.
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

// decoded returns the secrets in a string with its escapes undone, at their places in
// the string as it is. All of them belong to the place of the escape that led to this
// search.
func decoded(text []byte, begin, end, at int) []hit {
	plain, places := undo(text, begin, end)
	hits := inText.find(plain, 0, len(plain), len(plain))
	for i := range hits {
		h := &hits[i]
		h.at, h.from, h.to = at, places[h.from], places[h.to]
	}
	return hits
}
