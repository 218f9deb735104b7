package secrets

import (
	"bytes"
	"encoding/binary"
)

// shape is a kind of token that can be told by how it looks.
type shape struct {
	mark  string // the bytes that it begins with
	kind  string
	least int             // how many token bytes must follow the mark
	more  func(byte) bool // what the token's bytes may be
	until string          // instead of counting bytes: the token goes on to the end of this
}

// shapes are the tokens that are worth a warning. Each mark is rare in
// ordinary text and code.
var shapes = []shape{
	{mark: "sk-ant-", kind: "an Anthropic API key", least: 20, more: word},
	{mark: "sk-proj-", kind: "an OpenAI API key", least: 20, more: word},
	{mark: "sk-", kind: "an API key", least: 32, more: alphanumeric},
	{mark: "ghp_", kind: "a GitHub token", least: 30, more: alphanumeric},
	{mark: "gho_", kind: "a GitHub token", least: 30, more: alphanumeric},
	{mark: "ghs_", kind: "a GitHub token", least: 30, more: alphanumeric},
	{mark: "github_pat_", kind: "a GitHub token", least: 30, more: word},
	{mark: "glpat-", kind: "a GitLab token", least: 20, more: word},
	{mark: "xoxb-", kind: "a Slack token", least: 20, more: word},
	{mark: "xoxp-", kind: "a Slack token", least: 20, more: word},
	{mark: "AKIA", kind: "an AWS access key id", least: 16, more: upper},
	{mark: "AIza", kind: "a Google API key", least: 35, more: word},
	{mark: "hf_", kind: "a Hugging Face token", least: 30, more: alphanumeric},
	{mark: "npm_", kind: "an npm token", least: 36, more: alphanumeric},
	{mark: "eyJhbGciOi", kind: "a JSON Web Token", least: 30, more: jwt},
	{mark: "Bearer ", kind: "a bearer token", least: 20, more: bearer},
	{mark: "-----BEGIN ", kind: privateKey, until: "PRIVATE KEY-----"},
}

const privateKey = "a private key"

// longestMark is the length of the longest mark.
var longestMark = func() (n int) {
	for i := range shapes {
		n = max(n, len(shapes[i].mark))
	}
	return n
}()

func upper(c byte) bool        { return c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' }
func alphanumeric(c byte) bool { return upper(c) || c >= 'a' && c <= 'z' }
func word(c byte) bool         { return alphanumeric(c) || c == '-' || c == '_' }
func jwt(c byte) bool          { return word(c) || c == '.' }
func bearer(c byte) bool       { return jwt(c) || c == '+' || c == '/' || c == '~' || c == '=' }

// hit is a secret in a text. What was found under a name belongs to its key,
// and what has a shape to where it begins.
type hit struct {
	at       int
	from, to int
	kind     string
}

// pairs has a bit for each two bytes with which a mark begins, so that one look
// at each place of a text is enough.
var pairs = func() (bits [1 << 16 / 64]uint64) {
	for i := range shapes {
		p := uint16(shapes[i].mark[0]) | uint16(shapes[i].mark[1])<<8
		bits[p>>6] |= 1 << (p & 63)
	}
	return bits
}()

// isPair answers in its lowest bit whether a mark may begin with the lowest two
// bytes.
func isPair(two uint64) uint64 { return pairs[two>>6&1023] >> (two & 63) }

// nextPair answers the first place from i on at which a mark may begin, to or
// more where there is none. It looks at eight at a time.
func nextPair(text []byte, i, to int) int {
	for ; i+9 <= len(text) && i < to; i += 8 {
		w := binary.LittleEndian.Uint64(text[i:])
		last := w>>56 | uint64(text[i+8])<<8
		if (isPair(w)|isPair(w>>8)|isPair(w>>16)|isPair(w>>24)|isPair(w>>32)|isPair(w>>40)|isPair(w>>48)|isPair(last))&1 != 0 {
			break
		}
	}
	for ; i+1 < len(text) && i < to; i++ {
		if isPair(uint64(text[i])|uint64(text[i+1])<<8)&1 != 0 {
			return i
		}
	}
	return to
}

// shapesIn answers the tokens that begin in text[from:to], in order, at most
// so many. In JSON they do so inside strings, and end with them.
func shapesIn(text []byte, from, to int, json bool, most int) []hit {
	var hits []hit
	for i := nextPair(text, from, to); i < to && len(hits) < most; i = nextPair(text, i, to) {
		if beginsWord(text, i, json) {
			if h, ok := tokenAt(text, i, json); ok {
				hits = append(hits, h)
				i = h.to
				continue
			}
		}
		i++
	}
	return hits
}

// beginsWord says whether the byte before i is none of a word's. In JSON it may
// be the letter of an escape: a token often stands at the beginning of a line.
func beginsWord(text []byte, i int, json bool) bool {
	if i == 0 || !word(text[i-1]) {
		return true
	}
	if !json || i < 2 || text[i-2] != '\\' {
		return false
	}
	switch text[i-1] {
	case 'n', 'r', 't', 'f', 'b':
		return true
	}
	return false
}

// tokenAt answers the token that begins at a place.
func tokenAt(text []byte, from int, json bool) (hit, bool) {
	for i := range shapes {
		s := &shapes[i]
		if len(text)-from < len(s.mark) || string(text[from:from+len(s.mark)]) != s.mark {
			continue
		}
		if to := s.end(text, from, json); to > 0 {
			return hit{from, from, to, s.kind}, true
		}
	}
	return hit{}, false
}

const (
	telling = 128      // so many of a token's bytes say whether it is one
	maxKey  = 16 << 10 // a private key as text has fewer bytes
	keyHead = 40       // so many bytes after the mark say whether it is one
)

// end answers where the token that begins at from ends, 0 where it is none.
func (s *shape) end(text []byte, from int, json bool) int {
	rest := from + len(s.mark)
	if s.until != "" {
		if text = text[:min(rest+maxKey, len(text))]; json {
			text = text[:endOfString(text, rest)]
		}
		return s.endOfKey(text, rest)
	}
	to := s.run(text, rest, min(rest+telling, len(text)))
	if to-rest < s.least || !mixed(text[rest:to]) {
		return 0
	}
	return s.run(text, to, len(text))
}

// run answers where the token's bytes end that stand from a place on.
func (s *shape) run(text []byte, from, limit int) int {
	for from < limit && s.more(text[from]) {
		from++
	}
	return from
}

// endOfKey is for PEM: the kind of key stands between the mark and until, and
// the block goes on to its last line.
func (s *shape) endOfKey(text []byte, rest int) int {
	head := text[rest:min(rest+keyHead, len(text))]
	i := bytes.Index(head, []byte(s.until))
	if i < 0 {
		return 0
	}
	if j := bytes.Index(text[rest:], []byte("-----END ")); j > 0 {
		if k := bytes.Index(text[rest+j:], []byte(s.until)); k >= 0 {
			return rest + j + k + len(s.until)
		}
	}
	return rest + i + len(s.until)
}

// mixed says whether a token is more than one repeated character or a
// placeholder of letters alone: real ones have digits and letters.
func mixed(token []byte) bool {
	digit, letter := false, false
	for _, c := range token {
		digit = digit || c >= '0' && c <= '9'
		letter = letter || c >= 'A' && c <= 'Z' || c >= 'a' && c <= 'z'
	}
	return digit && letter
}
