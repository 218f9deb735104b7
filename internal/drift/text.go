package drift

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"maps"
	"slices"
	"unicode/utf8"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/jsontext"
)

// digest returns the beginning of the SHA-256 of parts, with this many hexadecimal
// digits.
func digest(length int, parts ...[]byte) string {
	h := sha256.New()
	for _, part := range parts {
		h.Write(part)
	}
	return hex.EncodeToString(h.Sum(nil))[:length]
}

// textOf returns the text of a JSON value: the content of a string, or else the canonical
// form with the escapes in its strings resolved. It is empty for null, "", [] and {}.
func textOf(value ckpt.JSON) []byte {
	value = bytes.TrimSpace(value)
	if len(value) == 0 {
		return nil
	}
	if value[0] == '"' {
		return contentOf(value)
	}
	canonical, err := jsontext.Canonical(value)
	if err != nil {
		return value
	}
	switch string(canonical) {
	case "null", "[]", "{}", `[""]`, "[null]":
		return nil
	}
	return unescape(canonical)
}

// stringOf returns the content of a JSON string, "" for another value.
func stringOf(value []byte) string { return string(contentOf(value)) }

// contentOf returns the content of a JSON string, nil for another value. Nearly all
// strings are plain, and encoding/json takes several times as long for them.
func contentOf(value []byte) []byte {
	if s, ok := plainContent(value); ok {
		return s
	}
	var s string
	if json.Unmarshal(value, &s) != nil {
		return nil
	}
	return []byte(s)
}

// escaped maps the letter of an escape to its character, 0 for none.
var escaped = [256]byte{'n': '\n', 't': '\t', 'r': '\r', 'b': '\b', 'f': '\f', '"': '"', '\\': '\\', '/': '/'}

// plainContent reads a JSON string that is valid UTF-8 and has only escapes of one
// letter.
func plainContent(value []byte) (s []byte, ok bool) {
	last := len(value) - 1
	if last < 1 || value[0] != '"' || value[last] != '"' {
		return nil, false
	}
	s = make([]byte, 0, last-1)
	for rest := value[1:last]; ; {
		n := 0
		for n < len(rest) && rest[n] >= ' ' && rest[n] != '\\' && rest[n] != '"' {
			n++
		}
		s = append(s, rest[:n]...)
		switch {
		case n == len(rest):
			return s, utf8.Valid(s)
		case rest[n] != '\\' || n+1 == len(rest) || escaped[rest[n+1]] == 0:
			return nil, false
		}
		s = append(s, escaped[rest[n+1]])
		rest = rest[n+2:]
	}
}

// unescape replaces the strings in a JSON text by their content. The quotes stay.
func unescape(canonical []byte) []byte {
	if bytes.IndexByte(canonical, '\\') < 0 {
		return canonical
	}
	out := make([]byte, 0, len(canonical))
	for i := 0; i < len(canonical); {
		if canonical[i] != '"' {
			out = append(out, canonical[i])
			i++
			continue
		}
		end := jsontext.StringEnd(canonical, i)
		out = append(out, '"')
		out = append(out, stringOf(canonical[i:end])...)
		out = append(out, '"')
		i = end
	}
	return out
}

// How many texts of a result are looked at, and how deep they can be.
const (
	maxTexts     = 16
	maxTextDepth = 4
)

// texts calls visit with the strings of a JSON value until visit returns false.
func texts(value []byte, depth int, visit func(string) bool) bool {
	value = bytes.TrimSpace(value)
	if len(value) == 0 || depth > maxTextDepth {
		return true
	}
	switch value[0] {
	case '"':
		return visit(stringOf(value))
	case '[':
		var items []json.RawMessage
		if json.Unmarshal(value, &items) != nil {
			return true
		}
		for _, item := range items[:min(len(items), maxTexts)] {
			if !texts(item, depth+1, visit) {
				return false
			}
		}
	case '{':
		var members map[string]json.RawMessage
		if json.Unmarshal(value, &members) != nil {
			return true
		}
		for _, key := range sortedKeys(members, maxTexts) {
			if !texts(members[key], depth+1, visit) {
				return false
			}
		}
	}
	return true
}

// sortedKeys returns the first keys of a map in order.
func sortedKeys[V any](m map[string]V, most int) []string {
	keys := slices.Sorted(maps.Keys(m))
	return keys[:min(len(keys), most)]
}
