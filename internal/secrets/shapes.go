package secrets

import (
	"bytes"
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
	{mark: "-----BEGIN ", kind: "a private key", until: "PRIVATE KEY-----"},
}

func upper(c byte) bool        { return c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' }
func alphanumeric(c byte) bool { return upper(c) || c >= 'a' && c <= 'z' }
func word(c byte) bool         { return alphanumeric(c) || c == '-' || c == '_' }
func jwt(c byte) bool          { return word(c) || c == '.' }
func bearer(c byte) bool       { return jwt(c) || c == '+' || c == '/' || c == '~' || c == '=' }

// hit is a token in a text.
type hit struct {
	from, to int
	kind     string
}

// pairs has a bit for each two bytes with which a mark begins, so that one look
// at each place of a text is enough.
var pairs = func() (bits [1024]uint64) {
	for i := range shapes {
		p := pair(shapes[i].mark[0], shapes[i].mark[1])
		bits[p>>6] |= 1 << (p & 63)
	}
	return bits
}()

func pair(a, b byte) uint { return uint(a)<<8 | uint(b) }

// findShapes answers the tokens of a text in order, at most so many.
func findShapes(text []byte, most int) []hit {
	var hits []hit
	for i := 0; i+1 < len(text) && len(hits) < most; i++ {
		p := pair(text[i], text[i+1])
		if pairs[p>>6]&(1<<(p&63)) == 0 || i > 0 && word(text[i-1]) {
			continue
		}
		if h, ok := tokenAt(text, i); ok {
			hits = append(hits, h)
			i = h.to - 1
		}
	}
	return hits
}

// tokenAt answers the token that begins at a place.
func tokenAt(text []byte, from int) (hit, bool) {
	for i := range shapes {
		s := &shapes[i]
		if len(text)-from < len(s.mark) || string(text[from:from+len(s.mark)]) != s.mark {
			continue
		}
		if to := s.end(text, from); to > 0 {
			return hit{from, to, s.kind}, true
		}
	}
	return hit{}, false
}

// end answers where the token that begins at from ends, 0 where it is none.
func (s *shape) end(text []byte, from int) int {
	rest := from + len(s.mark)
	if s.until != "" {
		return s.endOfKey(text, rest)
	}
	to := rest
	for to < len(text) && s.more(text[to]) {
		to++
	}
	if to-rest < s.least || !mixed(text[rest:to]) {
		return 0
	}
	return to
}

// endOfKey is for PEM: the kind of key stands between the mark and until, and
// the block goes on to its last line.
func (s *shape) endOfKey(text []byte, rest int) int {
	head := text[rest:min(rest+40, len(text))]
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

// inOrder sorts hits by place and drops those inside another.
func inOrder(hits []hit, most int) []hit {
	for i := 1; i < len(hits); i++ {
		for j := i; j > 0 && hits[j].from < hits[j-1].from; j-- {
			hits[j], hits[j-1] = hits[j-1], hits[j]
		}
	}
	var kept []hit
	for _, h := range hits {
		if n := len(kept); n > 0 && h.from < kept[n-1].to {
			continue
		}
		if len(kept) == most {
			break
		}
		kept = append(kept, h)
	}
	return kept
}
