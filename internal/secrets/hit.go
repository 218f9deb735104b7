package secrets

import (
	"strings"
)

// hit is a secret in a text. A hit that was found under a key belongs to the place of
// the key. Every other hit belongs to the place of the pair of bytes by which it was
// found.
type hit struct {
	at       int
	from, to int
	kind     string
}

// beginsWord reports whether the byte before i is not part of a word. In JSON that byte
// can be the end of an escape: a token is often at the beginning of a line.
func beginsWord(text []byte, i int, json bool) bool {
	if i == 0 || !word(text[i-1]) {
		return true
	}
	if !json || i < 2 {
		return false
	}
	if text[i-2] == '\\' {
		return strings.IndexByte("nrtfb", text[i-1]) >= 0
	}
	if i >= 6 && text[i-6] == '\\' && text[i-5] == 'u' {
		c, ok := escaped(text, i-6)
		return ok && (c > 0x7f || !word(byte(c)))
	}
	return false
}
