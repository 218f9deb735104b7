package blob

import (
	"encoding/json"
	"strconv"
	"strings"

	"github.com/ckptsidecar/ckptsidecar/internal/delta"
)

// WritePieces writes a list in the form of the column: a JSON array of [segment, offset, length].
func WritePieces(list []delta.Piece) string {
	b := append(make([]byte, 0, 20*len(list)+2), '[')
	for i, p := range list {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendInt(append(b, '['), p.Segment, 10)
		b = strconv.AppendInt(append(b, ','), p.Offset, 10)
		b = append(strconv.AppendInt(append(b, ','), p.Length, 10), ']')
	}
	return string(append(b, ']'))
}

// ReadPieces reads the column. If it is not a list of pieces, the error is a *DamageError.
func ReadPieces(text string) ([]delta.Piece, error) {
	if pieces, ok := readOwn(text); ok {
		return pieces, nil
	}
	var list [][]int64
	if err := json.Unmarshal([]byte(text), &list); err != nil {
		return nil, &DamageError{What: "its list of pieces cannot be read"}
	}
	pieces := make([]delta.Piece, len(list))
	for i, p := range list {
		if len(p) != 3 || p[1] < 0 || p[2] < 0 {
			return nil, &DamageError{What: "its list of pieces is invalid"}
		}
		pieces[i] = delta.Piece{Segment: p[0], Offset: p[1], Length: p[2]}
	}
	return pieces, nil
}

// readOwn reads only the exact form that WritePieces writes. Every save reads several lists, and
// encoding/json would cost more than the statements.
func readOwn(text string) ([]delta.Piece, bool) {
	if text == "[]" {
		return nil, true
	}
	pieces, at := make([]delta.Piece, 0, len(text)/12+1), 0
	for open := "[["; ; open = ",[" {
		if !strings.HasPrefix(text[at:], open) {
			return pieces, text[at:] == "]" && at > 0
		}
		at += len(open)
		var p delta.Piece
		for _, part := range [...]struct {
			to  *int64
			end byte
		}{{&p.Segment, ','}, {&p.Offset, ','}, {&p.Length, ']'}} {
			from := at
			for ; at < len(text) && '0' <= text[at] && text[at] <= '9' && at-from < 18; at++ {
				*part.to = *part.to*10 + int64(text[at]-'0')
			}
			if at == from || at == len(text) || text[at] != part.end {
				return nil, false
			}
			at++
		}
		pieces = append(pieces, p)
	}
}

// DamageError says in words what is wrong with stored data, and which checkpoint it belongs to.
type DamageError struct {
	What, ID string
	N        int64 // the row of its save in the audit log; 0 if unknown
}

func (e *DamageError) Error() string { return e.What }
