package foreign

import (
	"encoding/hex"
	"strings"
	"unicode"
	"unicode/utf8"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

// AgentName makes the name of an agent from a foreign name. It keeps a valid name.
// Otherwise it replaces each run of characters that a name cannot have by one "-",
// removes characters that a name cannot begin with, removes "-" at the end, and cuts
// what is too long. If nothing is left, or the name was cut, it adds eight digits of
// the original's hash, to distinguish the name from others.
func AgentName(original string) string {
	if ckpt.CheckAgentName(original) == nil {
		return original
	}
	name := clean(original, "._-")
	if name == "" {
		name = "agent"
	} else if len(name) <= ckpt.MaxAgentName {
		return name
	}
	return withHash(name, original, ckpt.MaxAgentName)
}

// RunName does the same for a run, whose name can also have ":@+". If it changes
// anything, it always adds the digits: two runs must not become one.
func RunName(original string) string {
	if ckpt.CheckRunName(original) == nil {
		return original
	}
	name := clean(original, "._:@+-")
	if name == "" {
		name = "run"
	}
	return withHash(name, original, ckpt.MaxRunName)
}

func clean(original, punctuation string) string {
	var b strings.Builder
	for _, r := range original {
		switch {
		case r < utf8.RuneSelf && (unicode.IsLetter(r) || unicode.IsDigit(r)):
			b.WriteRune(r)
		case b.Len() == 0: // a name begins with a letter or digit
		case strings.ContainsRune(punctuation, r):
			b.WriteRune(r)
		case !strings.HasSuffix(b.String(), "-"):
			b.WriteByte('-')
		}
		if b.Len() > ckpt.MaxRunName {
			break
		}
	}
	return strings.TrimRight(b.String(), "-")
}

func withHash(name, original string, most int) string {
	sum := hex.EncodeToString(newDigest(original).sum()[:4])
	return name[:min(len(name), most-len(sum)-1)] + "-" + sum
}

// key makes a step key or an event type from a foreign name. It keeps a valid name. If
// it changes the name, it adds digits of the name's hash.
func key(original string) string {
	if ckpt.CheckKey("key", original) == nil {
		return original
	}
	return withHash(printable(original, ckpt.MaxKey-9), original, ckpt.MaxKey)
}

// printable returns a text without control characters, cut to a number of bytes.
func printable(s string, most int) string {
	return cut(strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(s, "\uFFFD")), most)
}

// cut shortens a text at the beginning of a character.
func cut(s string, most int) string {
	if len(s) <= most {
		return s
	}
	for most > 0 && !utf8.RuneStart(s[most]) {
		most--
	}
	return s[:most]
}

// long returns a text that a run can hold. If it cuts the text, it notes that.
func (p *Plan) long(what, s string) ckpt.Ref {
	if len(s) > ckpt.MaxText {
		p.note("the %s is cut to %d of its %d bytes; the state has all of it", what, ckpt.MaxText, len(s))
	}
	return ckpt.Ref(cut(s, ckpt.MaxText))
}
