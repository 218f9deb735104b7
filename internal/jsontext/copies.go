package jsontext

import "github.com/ckptsidecar/ckptsidecar/internal/delta"

// CopiesOf lists the parts that a text has in common with its base, from the operations that make
// the text from the base.
func CopiesOf(ops []delta.Op) []Copy {
	copies, at := make([]Copy, 0, len(ops)), 0
	for _, op := range ops {
		if op.Offset != delta.Literal {
			copies = append(copies, Copy{At: at, From: op.Offset, Length: op.Length})
		}
		at += op.Length
	}
	return copies
}
