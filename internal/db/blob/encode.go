package blob

import (
	"crypto/sha256"
	"database/sql"
	"encoding/hex"

	"github.com/ckptsidecar/ckptsidecar/internal/db/sqlite"
	"github.com/ckptsidecar/ckptsidecar/internal/delta"
)

// inlineMost is the largest size of a state that is stored unchanged in its checkpoint's row. Such
// a row costs one page less to write than a separate segment.
const inlineMost = 4 << 10

// Encoded is a state that is about to be stored, prepared outside the writer.
type Encoded struct {
	Size   int64
	Sha256 string
	State  []byte
	Body   []byte        // the state itself, if it is small
	pieces []delta.Piece // otherwise its pieces; delta.New is the new segment
	fresh  int64         // bytes of the new segment, 0 if there is none
	data   []byte        // the new segment in zlib, or plain if that is not larger
	Base   *Stored       // the state whose segments the pieces name, nil for none
	Known  known
	Of     sql.NullInt64 // the seq of the checkpoint whose state this is a copy of

	lent     bool   // the memory of the state came from States.Memory
	Redacted bool   // it differs from the state that was sent
	Sent     string // the SHA-256 of the state that was sent
	Refused  error  // why the policy refuses it, if it was not saved before
}

// Encode hashes a state and deflates it. It is the costly part of a save, and runs in the caller's
// goroutine.
func Encode(state []byte) Encoded {
	sum := sha256.Sum256(state)
	e := Encoded{Size: int64(len(state)), Sha256: hex.EncodeToString(sum[:]), State: state}
	e.describe(nil, nil)
	return e
}

// describe sets the pieces of the state: ops make it from the state of base, which may be nil. New
// bytes are deflated.
func (e *Encoded) describe(base *Stored, ops []delta.Op) {
	e.Base, e.Body, e.pieces, e.fresh, e.data = nil, nil, nil, 0, nil
	if len(e.State) <= inlineMost {
		e.Body = e.State
		if e.State == nil {
			e.Body = []byte{}
		}
		return
	}
	var literal []byte
	if base != nil {
		e.Base = base
		e.pieces, literal = base.EncodeBy(e.State, ops)
	} else {
		e.pieces, literal = (*delta.Base)(nil).EncodeBy(e.State, nil)
	}
	if e.fresh = int64(len(literal)); e.fresh > 0 {
		e.data = Deflate(literal)
	}
	if e.fresh == e.Size {
		e.Base = nil
	}
}

// Stored is how many bytes the state adds to the database.
func (e *Encoded) Stored() int64 { return int64(len(e.Body) + len(e.data)) }

// Store writes the new segment under id, if there is one. It returns the values of the checkpoint's
// columns body and pieces, and the pieces also as a list.
func (e *Encoded) Store(tx *sqlite.Tx, runID, id int64) (body, text any, list []delta.Piece, err error) {
	if e.Body != nil {
		return e.Body, nil, nil, nil
	}
	if e.fresh > 0 {
		err = tx.Insert(`INSERT INTO segments (id, run_id, size, data) VALUES (?, ?, ?, ?)`, id, runID, e.fresh, e.data)
	}
	list = make([]delta.Piece, len(e.pieces)) // a new list each time, because the transaction may be tried again
	for i, p := range e.pieces {
		if p.Segment == delta.New {
			p.Segment = id
		}
		list[i] = p
	}
	return nil, WritePieces(list), list, err
}

// sizesOf returns the sizes of the segments that the stored pieces name.
func (e *Encoded) sizesOf(list []delta.Piece) map[int64]int64 {
	sizes := make(map[int64]int64, len(list))
	for i, p := range list {
		if e.pieces[i].Segment == delta.New {
			sizes[p.Segment] = e.fresh
		} else {
			sizes[p.Segment] = e.Base.Sizes[p.Segment]
		}
	}
	return sizes
}

// Kept is a state whose bytes come in the form in which they are stored, from another database. In pieces, delta.New is
// the segment of fresh bytes that data has.
func Kept(size int64, sha256 string, body []byte, pieces []delta.Piece, fresh int64, data []byte) Encoded {
	if pieces == nil && body == nil {
		body = []byte{}
	}
	return Encoded{Size: size, Sha256: sha256, Body: body, pieces: pieces, fresh: fresh, data: data}
}

// Parts are the bytes of a state that Encode has prepared: a body, or a segment of fresh bytes.
func (e *Encoded) Parts() (body []byte, fresh int64, data []byte) { return e.Body, e.fresh, e.data }
