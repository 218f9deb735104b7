package ledger

import (
	"bytes"
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db/sqlite"
	"github.com/ckptsidecar/ckptsidecar/internal/delta"
	"github.com/jmoiron/sqlx"
	"github.com/klauspost/compress/zlib"
)

// inlineMost is up to what size a state stands in its checkpoint's row as it
// is. Such a row costs one page less to write than a segment of its own.
const inlineMost = 4 << 10

// Encoded is a state on its way into the database, made outside the writer.
type Encoded struct {
	Size   int64
	Sha256 string
	State  []byte
	Body   []byte        // the state itself, where it is small
	pieces []delta.Piece // else what it is made of, delta.New being the new segment
	fresh  int64         // bytes of the new segment, 0 where there is none
	data   []byte        // the same, zlib, or plain where that is not smaller
	Base   *Stored       // whose segments the pieces name, nil for none
	Known  known
	of     sql.NullInt64 // the seq of the checkpoint whose state it is once more

	lent     bool   // the state's memory is Memory's
	Redacted bool   // it is not the state that was sent
	Sent     string // the SHA-256 of that one
	Refused  error  // why the policy refuses it, where it was not saved before
}

// Encode hashes a state, and deflates it. It is the costly part of a save, and
// runs in the caller's goroutine.
func Encode(state []byte) Encoded {
	sum := sha256.Sum256(state)
	e := Encoded{Size: int64(len(state)), Sha256: hex.EncodeToString(sum[:]), State: state}
	e.describe(nil, nil)
	return e
}

// describe says what the state is made of: the operations make it of a base's,
// which may be nil. What is new is deflated.
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

// store writes the new segment, where there is one, and answers what the
// checkpoint's columns body and pieces hold, and the latter as a list.
func (e *Encoded) store(tx *Tx, runID int64) (body, text any, list []delta.Piece, err error) {
	if e.Body != nil {
		return e.Body, nil, nil, nil
	}
	var id int64
	if e.fresh > 0 {
		_, err = tx.Get(&id, `INSERT INTO segments (run_id, size, data) VALUES (?, ?, ?) RETURNING id`, runID, e.fresh, e.data)
		tx.Wrote = true
	}
	list = make([]delta.Piece, len(e.pieces)) // another one each time: the transaction may be tried again
	for i, p := range e.pieces {
		if p.Segment == delta.New {
			p.Segment = id
		}
		list[i] = p
	}
	return nil, WritePieces(list), list, err
}

// WritePieces writes a list as the column holds it: a JSON array of
// [segment, offset, length].
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

func ReadPieces(text string) ([]delta.Piece, error) {
	if pieces, ok := ReadOurPieces(text); ok {
		return pieces, nil
	}
	var list [][]int64
	if err := json.Unmarshal([]byte(text), &list); err != nil {
		return nil, &DamageError{What: "its list of pieces cannot be read"}
	}
	pieces := make([]delta.Piece, len(list))
	for i, p := range list {
		if len(p) != 3 || p[1] < 0 || p[2] < 0 {
			return nil, &DamageError{What: "its list of pieces is wrong"}
		}
		pieces[i] = delta.Piece{Segment: p[0], Offset: p[1], Length: p[2]}
	}
	return pieces, nil
}

// ReadOurPieces reads a list just as writePieces writes it: every save reads
// several, and encoding/json would cost more than the statements.
func ReadOurPieces(text string) ([]delta.Piece, bool) {
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

var deflaters = sync.Pool{New: func() any {
	w, err := zlib.NewWriterLevel(nil, 1)
	if err != nil {
		panic(err) // the level is a constant
	}
	return w
}}

// Deflate answers zlib, or data itself where zlib is not smaller.
func Deflate(data []byte) []byte {
	w := deflaters.Get().(*zlib.Writer)
	defer deflaters.Put(w)
	var out bytes.Buffer
	out.Grow(len(data)/3 + 64)
	w.Reset(&out)
	if _, err := w.Write(data); err != nil || w.Close() != nil || out.Len() >= len(data) {
		return data
	}
	return out.Bytes()
}

// mostInflated is how many bytes zlib can make of one, and a little more.
const mostInflated = 1100

var inflaters sync.Pool // of io.ReadCloser that are zlib.Resetter

// Inflate undoes deflate, as sqlar_uncompress does.
func Inflate(data []byte, size int64) ([]byte, error) {
	if int64(len(data)) == size {
		return data, nil
	}
	if size < 0 || size > int64(len(data))*mostInflated {
		return nil, fmt.Errorf("the segment cannot have %d bytes", size)
	}
	r, err := inflater(data)
	if err != nil {
		return nil, err
	}
	defer inflaters.Put(r)
	out := make([]byte, size)
	if _, err := io.ReadFull(r, out); err != nil {
		return nil, err
	}
	if n, err := r.Read(make([]byte, 1)); n > 0 || err != io.EOF { // the end, which its checksum comes with
		return nil, fmt.Errorf("the segment does not end after %d bytes: %w", size, err)
	}
	return out, nil
}

func inflater(data []byte) (io.ReadCloser, error) {
	if r, ok := inflaters.Get().(io.ReadCloser); ok {
		return r, r.(zlib.Resetter).Reset(bytes.NewReader(data), nil)
	}
	return zlib.NewReader(bytes.NewReader(data))
}

// DamageError is what is wrong with stored data, in words, and with that of
// which checkpoint.
type DamageError struct{ What, ID string }

func (e *DamageError) Error() string { return e.What }

// StateRow is what a state is read back from.
type StateRow struct {
	N      int64   `db:"n"`
	ID     string  `db:"id"`
	Size   int64   `db:"size"`
	SHA256 string  `db:"sha256"`
	Body   []byte  `db:"body"`
	Pieces *string `db:"pieces"`
}

// segmentRow is stored material.
type segmentRow struct {
	ID   int64  `db:"id"`
	Size int64  `db:"size"`
	Data []byte `db:"data"`
}

// Decode puts a state together and checks its hash. What does not match is
// never served.
func Decode(ctx context.Context, q sqlx.QueryerContext, r *StateRow) ([]byte, error) {
	state, err := assemble(ctx, q, r)
	var damage *DamageError
	if err != nil && !errors.As(err, &damage) {
		return nil, sqlite.ReadError(err)
	}
	if err == nil {
		sum := sha256.Sum256(state)
		if hex.EncodeToString(sum[:]) == r.SHA256 {
			return state, nil
		}
		err = &DamageError{What: "its hash does not match", ID: r.ID}
	}
	if damage != nil {
		damage.ID = r.ID
	}
	return nil, ckpt.Wrap(ckpt.CodeCorrupt, err, "checkpoint %s is damaged and is not served: %s; run ckptsidecar verify, and restore another", r.ID, err)
}

func assemble(ctx context.Context, q sqlx.QueryerContext, r *StateRow) ([]byte, error) {
	if r.Pieces == nil {
		return r.Body, nil
	}
	pieces, err := ReadPieces(*r.Pieces)
	if err != nil {
		return nil, err
	}
	segments, err := loadSegments(ctx, q, pieces)
	if err != nil {
		return nil, err
	}
	length := int64(0)
	for _, p := range pieces {
		bytes, ok := segments[p.Segment]
		switch {
		case !ok:
			return nil, &DamageError{What: fmt.Sprintf("segment %d is missing", p.Segment)}
		case p.Offset > int64(len(bytes))-p.Length:
			return nil, &DamageError{What: fmt.Sprintf("segment %d is too short", p.Segment)}
		}
		if length += p.Length; length > r.Size {
			return nil, &DamageError{What: "its pieces are more than its size"}
		}
		if len(pieces) == 1 {
			return bytes[p.Offset : p.Offset+p.Length : p.Offset+p.Length], nil
		}
	}
	state := make([]byte, 0, length)
	for _, p := range pieces {
		state = append(state, segments[p.Segment][p.Offset:p.Offset+p.Length]...)
	}
	return state, nil
}

// loadSegments reads all that a list names at once, and inflates it.
func loadSegments(ctx context.Context, q sqlx.QueryerContext, pieces []delta.Piece) (map[int64][]byte, error) {
	var rows []segmentRow
	err := sqlx.SelectContext(ctx, q, &rows, `SELECT id, size, data FROM segments
		WHERE id IN (SELECT json_extract(value, '$[0]') FROM json_each(?))`, WritePieces(pieces))
	if err != nil {
		return nil, err
	}
	segments := make(map[int64][]byte, len(rows))
	for i := range rows {
		row := &rows[i]
		if segments[row.ID], err = Inflate(row.Data, row.Size); err != nil {
			return nil, &DamageError{What: fmt.Sprintf("segment %d does not inflate", row.ID)}
		}
		row.Data = nil
	}
	return segments, nil
}
