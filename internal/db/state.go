package db

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/jmoiron/sqlx"
	"github.com/klauspost/compress/zlib"
)

// inlineMost is up to what size a state stands in its checkpoint's row as it
// is. Such a row costs one page less to write than a segment of its own.
const inlineMost = 4 << 10

// piece says where a part of a state stands: length bytes from offset of a
// segment's bytes. In the database it is the JSON array [segment, offset, length].
type piece struct{ segment, offset, length int64 }

// MarshalJSON writes the array.
func (p piece) MarshalJSON() ([]byte, error) {
	return fmt.Appendf(nil, "[%d,%d,%d]", p.segment, p.offset, p.length), nil
}

// UnmarshalJSON reads the array.
func (p *piece) UnmarshalJSON(b []byte) error {
	var a [3]int64
	if err := json.Unmarshal(b, &a); err != nil {
		return err
	}
	*p = piece{a[0], a[1], a[2]}
	return nil
}

// encoded is a state on its way into the database, made outside the writer.
type encoded struct {
	size   int64
	sha256 string
	body   []byte // the state itself, where it is small
	data   []byte // else one new segment: zlib, or plain where that is not smaller
}

// encode hashes and deflates a state. It is the costly part of a save, and
// runs in the caller's goroutine.
func encode(state []byte) encoded {
	sum := sha256.Sum256(state)
	e := encoded{size: int64(len(state)), sha256: hex.EncodeToString(sum[:])}
	if len(state) <= inlineMost {
		e.body = state
		if state == nil {
			e.body = []byte{}
		}
		return e
	}
	e.data = deflate(state)
	return e
}

// stored is how many bytes the state adds to the database.
func (e *encoded) stored() int64 { return int64(len(e.body) + len(e.data)) }

// store writes the new segment, where there is one, and answers what the
// checkpoint's columns body and pieces hold.
func (e *encoded) store(tx *tx, runID int64) (body any, pieces any, err error) {
	if e.body != nil {
		return e.body, nil, nil
	}
	var id int64
	_, err = tx.get(&id, `INSERT INTO segments (run_id, size, data) VALUES (?, ?, ?) RETURNING id`, runID, e.size, e.data)
	if err != nil {
		return nil, nil, err
	}
	list, err := json.Marshal([]piece{{id, 0, e.size}})
	return nil, string(list), err
}

var deflaters = sync.Pool{New: func() any {
	w, err := zlib.NewWriterLevel(nil, 1)
	if err != nil {
		panic(err) // the level is a constant
	}
	return w
}}

// deflate answers zlib, or data itself where zlib is not smaller.
func deflate(data []byte) []byte {
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

// inflate undoes deflate, as sqlar_uncompress does.
func inflate(data []byte, size int64) ([]byte, error) {
	if int64(len(data)) == size {
		return data, nil
	}
	r, err := zlib.NewReader(bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	out := make([]byte, 0, size)
	buf := bytes.NewBuffer(out)
	if _, err := io.Copy(buf, io.LimitReader(r, size+1)); err != nil {
		return nil, err
	}
	if int64(buf.Len()) != size {
		return nil, fmt.Errorf("the segment has %d bytes where %d are expected", buf.Len(), size)
	}
	return buf.Bytes(), nil
}

// damageError is what is wrong with stored data, in words.
type damageError struct{ what string }

func (e *damageError) Error() string { return e.what }

// stateRow is what a state is read back from.
type stateRow struct {
	N      int64   `db:"n"`
	ID     string  `db:"id"`
	Size   int64   `db:"size"`
	SHA256 string  `db:"sha256"`
	Body   []byte  `db:"body"`
	Pieces *string `db:"pieces"`
}

// segmentRow is stored material.
type segmentRow struct {
	Size int64  `db:"size"`
	Data []byte `db:"data"`
}

// decode puts a state together and checks its hash. What does not match is
// never served.
func decode(ctx context.Context, q sqlx.QueryerContext, r *stateRow) ([]byte, error) {
	state, err := assemble(ctx, q, r)
	var damage *damageError
	if err != nil && !errors.As(err, &damage) {
		return nil, readError(err)
	}
	if err == nil {
		sum := sha256.Sum256(state)
		if hex.EncodeToString(sum[:]) == r.SHA256 {
			return state, nil
		}
		err = &damageError{"its hash does not match"}
	}
	return nil, ckpt.Wrap(ckpt.CodeCorrupt, err, "checkpoint %s is damaged and is not served: %s; run ckptsidecar verify, and restore another", r.ID, err)
}

func assemble(ctx context.Context, q sqlx.QueryerContext, r *stateRow) ([]byte, error) {
	if r.Pieces == nil {
		return r.Body, nil
	}
	var pieces []piece
	if err := json.Unmarshal([]byte(*r.Pieces), &pieces); err != nil {
		return nil, &damageError{"its list of pieces cannot be read"}
	}
	segments := map[int64][]byte{}
	state := make([]byte, 0, min(max(r.Size, 0), 1<<30))
	for _, p := range pieces {
		bytes, ok := segments[p.segment]
		if !ok {
			var err error
			if bytes, err = loadSegment(ctx, q, p.segment); err != nil {
				return nil, err
			}
			segments[p.segment] = bytes
		}
		if p.offset < 0 || p.length < 0 || p.offset > int64(len(bytes))-p.length {
			return nil, &damageError{fmt.Sprintf("segment %d is too short", p.segment)}
		}
		state = append(state, bytes[p.offset:p.offset+p.length]...)
	}
	return state, nil
}

func loadSegment(ctx context.Context, q sqlx.QueryerContext, id int64) ([]byte, error) {
	var row segmentRow
	err := sqlx.GetContext(ctx, q, &row, `SELECT size, data FROM segments WHERE id = ?`, id)
	if isNoRows(err) {
		return nil, &damageError{fmt.Sprintf("segment %d is missing", id)}
	}
	if err != nil {
		return nil, err
	}
	bytes, err := inflate(row.Data, row.Size)
	if err != nil {
		return nil, &damageError{fmt.Sprintf("segment %d does not inflate", id)}
	}
	return bytes, nil
}
