package secrets

import "bytes"

// plainValue says whether a byte may stand in a value without quotes.
func plainValue(c byte) bool {
	switch c {
	case '"', '\'', '`', '\\', ',', ';', '&', '(', ')', '[', ']', '{', '}', '<', '>', '|':
		return false
	}
	return c > ' ' && c != 0x7f
}

// reach is how far from the place where a secret is found it may begin and end,
// but for what goes on in bytes of a value without quotes.
const reach = 640

const (
	longestQuoted = 256 // bytes of a value in quotes
	longestURL    = 300 // bytes of what stands before the host
)

// assigned answers the secret that is given to a name in text, as in
// password=value, "password": "value" or PASSWORD := 'value'. at is the place of
// the = or the colon. In JSON, text is inside of a string.
func assigned(text []byte, at int, json bool) (hit, bool) {
	key, quoted := keyBefore(text, at, json)
	n := secretName(key)
	if n.sure == never {
		return hit{}, false
	}
	from := at + 1
	if from < len(text) && text[at] == ':' && text[from] == '=' {
		from++
	}
	for spaces := 0; from < len(text) && text[from] == ' ' && spaces < 4; spaces++ {
		from++
	}
	to, inQuotes := valueFrom(text, &from, json)
	value := text[from:to]
	if len(value) < 6 || isPlaceholder(value) {
		return hit{}, false
	}
	if !n.given(value, inQuotes, quoted, isVariable(key) && text[at] == '=') {
		return hit{}, false
	}
	if scheme := len(schemeOf(value)); scheme > 0 && len(value) > scheme {
		from += scheme
	}
	if !inQuotes { // what was looked at may be its beginning alone
		to = runOfValue(text, to, len(text))
	}
	return hit{from: from, to: to, kind: n.kind}, true
}

// given says whether a value in text is a secret. In prose and code much is
// given to such names that is none, so that it must look like one, unless it
// stands in quotes or in a variable of the environment.
func (n *name) given(value []byte, inQuotes, keyQuoted, variable bool) bool {
	if !n.isSecret(value) {
		return false
	}
	if n.kind == names["cookie"].kind || inQuotes && !bytes.ContainsRune(value, ' ') || variable && n.sure == strong {
		return true
	}
	if scheme := len(schemeOf(value)); scheme > 0 {
		value = value[scheme:]
	}
	return !bytes.ContainsRune(value, ' ') && mixed(value) && !isCode(value) && (n.sure == strong || looksMade(value))
}

// isCode says whether a value is a name in a program: words joined by points.
func isCode(value []byte) bool {
	i := bytes.IndexByte(value, '.')
	return i > 0 && i < len(value)-1 && alphanumeric(value[i+1]) && !mixed(value[:i])
}

// isVariable says whether a key is written as variables of the environment are.
func isVariable(key []byte) bool {
	for _, c := range key {
		if c >= 'a' && c <= 'z' || c == '-' || c == '.' || c == ' ' {
			return false
		}
	}
	return true
}

// keyBefore answers the name before a = or a colon.
func keyBefore(text []byte, at int, json bool) (key []byte, quoted bool) {
	end := at
	for end > 0 && text[end-1] == ' ' && at-end < 2 {
		end--
	}
	for i := 0; end > 0 && i < 6 && (text[end-1] == '"' || text[end-1] == '\'' || text[end-1] == '\\' || text[end-1] == '`'); i++ {
		if json && text[end-1] == '"' && (end < 2 || text[end-2] != '\\') {
			return nil, false // the string begins or ends here
		}
		end, quoted = end-1, true
	}
	begin := end
	for begin > 0 && end-begin <= longestKey && (word(text[begin-1]) || text[begin-1] == '.') {
		begin--
	}
	if json && begin > 0 && text[begin-1] == '\\' { // the letter of an escape
		begin += escapeLength(text[begin:end])
	}
	return text[min(begin, end):end], quoted
}

// escapeLength is how many bytes of an escape follow its backslash.
func escapeLength(rest []byte) int {
	if len(rest) > 0 && rest[0] == 'u' {
		return 5
	}
	return 1
}

// valueFrom answers where the value ends that begins at from, and moves from
// behind its quote. Of a long value without quotes it answers the beginning.
func valueFrom(text []byte, from *int, json bool) (to int, inQuotes bool) {
	i := *from
	for i < len(text) && text[i] == '\\' && i-*from < 4 {
		i++
	}
	if i < len(text) && (text[i] == '\'' || text[i] == '`' || text[i] == '"' && (!json || i > *from)) {
		quote := text[i]
		i++
		*from = i
		for end := min(i+longestQuoted, len(text)); i < end && text[i] != quote && text[i] != '\\' && text[i] != '"' && text[i] >= ' '; {
			i++
		}
		return i, true
	}
	i = *from
	scheme := len(schemeOf(text[i:min(i+8, len(text))]))
	i = runOfValue(text, i+scheme, min(i+scheme+telling, len(text)))
	if i < len(text) && (text[i] == '(' || text[i] == '[' || text[i] == '{') { // a call or a place in a table
		return *from, false
	}
	return i, false
}

// runOfValue answers where a value without quotes ends that goes on from a place.
func runOfValue(text []byte, from, limit int) int {
	for from < limit && plainValue(text[from]) {
		from++
	}
	return from
}

// inURL answers the password in a URL whose :// begins at a place.
func inURL(text []byte, at int) (hit, bool) {
	if at+3 > len(text) || text[at+1] != '/' || text[at+2] != '/' || at == 0 || !alphanumeric(text[at-1]) {
		return hit{}, false
	}
	colon, sign := -1, -1
	for i := at + 3; i < min(at+3+longestURL, len(text)) && userinfo(text[i]); i++ {
		switch {
		case text[i] == ':' && colon < 0:
			colon = i
		case text[i] == '@':
			sign = i
		}
	}
	if colon < 0 || sign < colon+4 {
		return hit{}, false
	}
	user, password := text[at+3:colon], text[colon+1:sign]
	if isPlaceholder(password) || isExample(user) && isExample(password) {
		return hit{}, false
	}
	return hit{from: colon + 1, to: sign, kind: "a password in a URL"}, true
}

// userinfo says whether a byte may stand before the host of a URL.
func userinfo(c byte) bool {
	switch c {
	case '/', '?', '#', '"', '\\', '<', '>', '`', '{', '}', '|', '^', '[', ']':
		return false
	}
	return c > ' ' && c < 0x7f
}

// isExample says whether a word is what documents write for a user or a password.
func isExample(word []byte) bool {
	switch string(bytes.ToLower(word)) {
	case "user", "username", "usr", "name", "login", "pass", "password", "passwd", "pwd", "secret", "":
		return true
	}
	return false
}
