package secrets

import "bytes"

// plainValue reports whether a byte can be in a value without quotes.
func plainValue(c byte) bool {
	switch c {
	case '"', '\'', '`', '\\', ',', ';', '&', '(', ')', '[', ']', '{', '}', '<', '>', '|':
		return false
	}
	return c > ' ' && c != 0x7f
}

// reach is how far from its place a secret can begin and end, apart from the rest of a
// value without quotes.
const reach = 640

const (
	longestQuoted = 256 // bytes of a value in quotes
	longestURL    = 300 // bytes of the part before the host
)

// assigned returns the secret that a text assigns to a name, as in password=value,
// "password": "value" or PASSWORD := 'value'. at is the place of the = or the colon. If
// json is set, the text at this place is inside a string.
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
	if !inQuotes { // only the beginning of the value may have been looked at
		to = runOfValue(text, to, len(text))
	}
	return hit{from: from, to: to, kind: n.kind}, true
}

// given reports whether a value in text is a secret. Prose and code often assign values
// to such names that are no secrets. So the value must look like a secret, unless it is
// in quotes or belongs to an environment variable.
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

// isCode reports whether a value is a name in a program: words joined by dots.
func isCode(value []byte) bool {
	i := bytes.IndexByte(value, '.')
	return i > 0 && i < len(value)-1 && alphanumeric(value[i+1]) && !mixed(value[:i])
}

// isVariable reports whether a key is written like an environment variable.
func isVariable(key []byte) bool {
	for _, c := range key {
		if c >= 'a' && c <= 'z' || c == '-' || c == '.' || c == ' ' {
			return false
		}
	}
	return true
}

// keyBefore returns the name before a = or a colon.
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
	if json && begin > 0 && text[begin-1] == '\\' { // the letter belongs to an escape
		begin += escapeLength(text[begin:end])
	}
	return text[min(begin, end):end], quoted
}

// escapeLength returns how many bytes of an escape follow its backslash.
func escapeLength(rest []byte) int {
	if len(rest) > 0 && rest[0] == 'u' {
		return 5
	}
	return 1
}

// valueFrom returns the end of the value that begins at from, and moves from behind the
// value's opening quote. For a long value without quotes it returns the end of its
// beginning.
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
	if i < len(text) && (text[i] == '(' || text[i] == '[' || text[i] == '{') { // a call, or an index into a table
		return *from, false
	}
	return i, false
}

// runOfValue returns the end of a value without quotes. from is a place in the value.
func runOfValue(text []byte, from, limit int) int {
	for from < limit && plainValue(text[from]) {
		from++
	}
	return from
}

// inURL returns the password in a URL. at is the place of the URL's "://".
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

// userinfo reports whether a byte can be before the host of a URL.
func userinfo(c byte) bool {
	switch c {
	case '/', '?', '#', '"', '\\', '<', '>', '`', '{', '}', '|', '^', '[', ']':
		return false
	}
	return c > ' ' && c < 0x7f
}

// isExample reports whether documents use a word as an example for a user or a
// password.
func isExample(word []byte) bool {
	switch string(bytes.ToLower(word)) {
	case "user", "username", "usr", "name", "login", "pass", "password", "passwd", "pwd", "secret", "":
		return true
	}
	return false
}
