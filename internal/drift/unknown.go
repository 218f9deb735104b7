package drift

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
)

// maxCallArgs is the maximum size of arguments that are parsed. Larger arguments are only
// compared as a whole.
const maxCallArgs = 1 << 20

// stems occur in every mark that replaces or cuts a text.
var stems = [][]byte{
	[]byte("edact"), []byte("EDACT"), []byte("emoved"), []byte("EMOVED"), []byte("ask"), []byte("ASK"), []byte("idden"),
	[]byte("IDDEN"), []byte("ilter"), []byte("ILTER"),
	[]byte("crub"), []byte("CRUB"), []byte("mitted"), []byte("MITTED"), []byte("runcat"), []byte("RUNCAT"), []byte("cut"),
	[]byte("CUT"), []byte("lided"), []byte("LIDED"),
	[]byte("lipped"), []byte("LIPPED"), []byte("***"),
}

// isMarked reports whether a value can have a mark that something was replaced or cut. It
// is a quick test, so that most values need not be parsed.
func isMarked(value []byte) bool {
	return slices.ContainsFunc(stems, func(stem []byte) bool { return bytes.Contains(value, stem) })
}

// saysTooLittle reports whether a part of the arguments was replaced or cut on the way to
// the daemon, so that a difference between two calls can be missing. A replaced secret
// does not count, because a secret is the same each time.
func saysTooLittle(value []byte, depth int) bool {
	if depth > maxTextDepth {
		return false
	}
	value = bytes.TrimSpace(value)
	if len(value) == 0 {
		return false
	}
	switch value[0] {
	case '"':
		return isReplaced(contentOf(value))
	case '[':
		var items []json.RawMessage
		if json.Unmarshal(value, &items) != nil {
			return false
		}
		return slices.ContainsFunc(items[:min(len(items), maxTexts)], func(item json.RawMessage) bool { return saysTooLittle(item, depth+1) })
	case '{':
		return objectSaysTooLittle(value, depth)
	}
	return false
}

func objectSaysTooLittle(value []byte, depth int) bool {
	var members map[string]json.RawMessage
	if json.Unmarshal(value, &members) != nil {
		return false
	}
	if isCutMark(members) {
		return true
	}
	for key, member := range members {
		if !isSecretName(key) && saysTooLittle(member, depth+1) {
			return true
		}
	}
	return false
}

// isCutMark reports whether an object replaces a longer value and does not identify it.
// With a hash, it identifies the value.
func isCutMark(members map[string]json.RawMessage) bool {
	cut := false
	for _, name := range []string{"cut", "truncated", "redacted"} {
		cut = cut || string(members[name]) == "true"
	}
	return cut && members["sha256"] == nil
}

// isSecretName reports whether programs use a member of this name for secrets.
func isSecretName(name string) bool {
	name = strings.ToLower(name)
	for _, word := range []string{"password", "passwd", "secret", "token", "api_key", "apikey", "api-key", "authorization", "credential", "cookie"} {
		if strings.Contains(name, word) {
			return true
		}
	}
	return false
}

// maxCutMark is the maximum length of a note at the end of a text that says that the text
// was cut.
const maxCutMark = 80

// isReplaced reports whether a text replaces another text, or was cut at its end: the
// whole text is a mark such as __REDACTED__, or it ends with one such as "[truncated]" in
// brackets.
func isReplaced(text []byte) bool {
	text = bytes.TrimSpace(text)
	if len(text) == 0 {
		return false
	}
	tail := string(text[max(0, len(text)-maxCutMark):])
	if len(tail) == len(text) {
		word := strings.ToLower(strings.Trim(tail, "_[]<>(){}*#-.…\"' "))
		if slices.Contains(replacedWords, word) || word == "" && strings.Trim(tail, "*") == "" && len(tail) >= 3 {
			return true
		}
	}
	open := strings.LastIndexAny(tail, "[<(")
	if open < 0 || !strings.ContainsAny(tail[len(tail)-1:], "]>)") {
		return false
	}
	tail = strings.ToLower(tail[open:])
	return slices.ContainsFunc(cutWords, func(w string) bool { return strings.Contains(tail, w) })
}

// The words with which recorders replace what they leave out, with any brackets and
// punctuation around them.
var (
	replacedWords = []string{"redacted", "removed", "masked", "hidden", "filtered", "scrubbed", "omitted", "truncated"}
	cutWords      = []string{"truncated", "cut off", "omitted", "elided", "clipped"}
)
