package ledger

import (
	"encoding/json"
	"unicode/utf8"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

// The JSON that every save writes inside the writer is written by hand, because all
// other writes wait meanwhile. A test compares it with encoding/json.

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

// AppendString writes a text itself if the text needs only quotes and backslashes. It leaves other
// texts to encoding/json.
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
				panic("text cannot be written as JSON: " + err.Error()) // cannot happen
			}
			return append(b[:mark], text...)
		default:
			b = append(b, c)
		}
	}
	return append(b, '"')
}
