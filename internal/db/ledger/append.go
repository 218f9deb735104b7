package ledger

import (
	"encoding/json"
	"unicode/utf8"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

// What every save writes as JSON inside the writer is written by hand, since
// nobody else can go on meanwhile. A test compares it with encoding/json.

func AppendTime(b []byte, t ckpt.Time) []byte {
	if t.IsZero() {
		return append(b, "null"...)
	}
	return append(t.UTC().AppendFormat(append(b, '"'), ckpt.TimeLayout), '"')
}

func AppendRef(b []byte, r ckpt.Ref) []byte {
	if r == "" {
		return append(b, "null"...)
	}
	return AppendString(b, string(r))
}

// AppendString writes what needs nothing but quotes and backslashes by itself,
// and leaves the rest to encoding/json.
func AppendString(b []byte, s string) []byte {
	mark := len(b)
	b = append(b, '"')
	for i := range len(s) {
		switch c := s[i]; {
		case c == '"' || c == '\\':
			b = append(b, '\\', c)
		case c < ' ' || c == '<' || c == '>' || c == '&' || c >= utf8.RuneSelf || c == 0x7f:
			text, err := json.Marshal(s)
			if err != nil {
				panic("text cannot be written as JSON: " + err.Error()) // it always can
			}
			return append(b[:mark], text...)
		default:
			b = append(b, c)
		}
	}
	return append(b, '"')
}
