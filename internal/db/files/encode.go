package files

import (
	"context"
	"encoding/hex"
	"fmt"
	"slices"

	"github.com/jmoiron/sqlx"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db/blob"
	"github.com/ckptsidecar/ckptsidecar/internal/delta"
)

// itself is the segment number that a content has in its own list of pieces.
const itself = delta.New

// Row is a stored content.
type Row struct {
	ID     int64   `db:"id"`
	SHA256 []byte  `db:"sha256"`
	Size   int64   `db:"size"`
	Pieces *string `db:"pieces"`
	Fresh  int64   `db:"fresh"`
	Data   []byte  `db:"data"`
}

// Columns are the columns of a Row.
const Columns = `id, sha256, size, pieces, fresh, data`

// Hex returns the hash of a content in hexadecimal.
func (r *Row) Hex() string { return hex.EncodeToString(r.SHA256) }

// Decode reads a content back and checks its hash. It never returns damaged content: the error is
// corrupt, and its cause is a *blob.DamageError.
func Decode(ctx context.Context, q sqlx.QueryerContext, r *Row) ([]byte, error) {
	base, err := decodeBase(ctx, q, r)
	if err != nil {
		return nil, err
	}
	return base.State, nil
}

// decodeBase is Decode, and also returns what a change to the content needs.
func decodeBase(ctx context.Context, q sqlx.QueryerContext, r *Row) (*delta.Base, error) {
	base, err := readBack(ctx, q, r)
	if err == nil && blob.HashOf(base.State) != r.Hex() {
		err = &blob.DamageError{What: "the bytes do not match the hash"}
	}
	if err != nil && ctx.Err() == nil && isDamage(err) {
		err = ckpt.Wrap(ckpt.CodeCorrupt, err, "the content %s is damaged and is not served; run ckptsidecar verify", r.Hex())
	}
	return base, err
}

func isDamage(err error) bool {
	_, is := err.(*blob.DamageError)
	return is
}

func readBack(ctx context.Context, q sqlx.QueryerContext, r *Row) (*delta.Base, error) {
	own, err := blob.Inflate(r.Data, r.Fresh)
	if err != nil {
		return nil, &blob.DamageError{What: "its bytes cannot be inflated"}
	}
	if r.Pieces == nil {
		return &delta.Base{State: own, Pieces: []delta.Piece{{Segment: r.ID, Length: r.Fresh}}, Sizes: map[int64]int64{r.ID: r.Fresh}}, nil
	}
	pieces, err := blob.ReadPieces(*r.Pieces)
	if err != nil {
		return nil, err
	}
	base := &delta.Base{State: make([]byte, 0, min(max(r.Size, 0), 64<<20)), Pieces: pieces, Sizes: map[int64]int64{}}
	bytes := map[int64][]byte{r.ID: own}
	for i := range pieces {
		p := &pieces[i]
		if p.Segment == itself {
			p.Segment = r.ID
		}
		data, known := bytes[p.Segment]
		if !known {
			if data, err = material(ctx, q, r.ID, p.Segment); err != nil {
				return nil, err
			}
			bytes[p.Segment] = data
		}
		base.Sizes[p.Segment] = int64(len(data))
		if p.Offset < 0 || p.Length < 0 || p.Offset > int64(len(data)) || p.Length > int64(len(data))-p.Offset ||
			int64(len(base.State))+p.Length > r.Size {
			return nil, &blob.DamageError{What: "one of its pieces lies outside of its material"}
		}
		base.State = append(base.State, data[p.Offset:p.Offset+p.Length]...)
	}
	return base, nil
}

// material reads the bytes of a row of which a content has pieces. Both rows must belong to one
// agent.
func material(ctx context.Context, q sqlx.QueryerContext, of, id int64) ([]byte, error) {
	var rows []struct {
		Fresh int64  `db:"fresh"`
		Data  []byte `db:"data"`
	}
	err := sqlx.SelectContext(ctx, q, &rows, `SELECT m.fresh, m.data FROM contents m JOIN contents c ON c.agent_id = m.agent_id
		WHERE m.id = ? AND c.id = ?`, id, of)
	if err != nil {
		return nil, err
	}
	if len(rows) == 0 {
		return nil, &blob.DamageError{What: fmt.Sprintf("row %d, which it uses, is missing", id)}
	}
	data, err := blob.Inflate(rows[0].Data, rows[0].Fresh)
	if err != nil {
		return nil, &blob.DamageError{What: fmt.Sprintf("the bytes of row %d, which it uses, cannot be inflated", id)}
	}
	return data, nil
}

// encoded is a content that is about to be stored.
type encoded struct {
	sum    []byte
	hex    string
	size   int64
	raw    []byte // the content itself
	pieces []delta.Piece
	fresh  int64
	data   []byte
	was    string // the content that it is a change to, "" if there is none
	wasID  int64
	in     *encoded // the same, if that content is stored in the same transaction
	secret string
	rowID  int64 // set when it is inserted
	isNew  bool  // it did not exist before
}

// inBatch is the segment number for the bytes of encoded.in, whose row does not exist yet.
const inBatch = -1

// encode describes a content by pieces of the previous one, nil for none, if that saves space.
func encode(raw []byte, sum []byte, was *Row, base *delta.Base) *encoded {
	e := &encoded{sum: sum, hex: hex.EncodeToString(sum), size: int64(len(raw)), raw: raw}
	if base != nil {
		pieces, literal := base.Encode(raw)
		if len(pieces) > 1 || len(pieces) == 1 && pieces[0].Segment != delta.New {
			e.pieces, e.fresh, e.data = pieces, int64(len(literal)), blob.DeflateSmall(literal)
			e.was, e.wasID = was.Hex(), was.ID
			return e
		}
	}
	e.whole()
	return e
}

// encodeLike is encode for a content that is similar to one that is stored whole in the same
// transaction.
func encodeLike(raw []byte, sum []byte, like *encoded) *encoded {
	e := &encoded{sum: sum, hex: hex.EncodeToString(sum), size: int64(len(raw)), raw: raw}
	base := &delta.Base{State: like.raw, Pieces: []delta.Piece{{Segment: inBatch, Length: like.size}}, Sizes: map[int64]int64{inBatch: like.size}}
	pieces, literal := base.Encode(raw)
	if len(pieces) == 1 && pieces[0].Segment == delta.New {
		e.whole()
		return e
	}
	e.pieces, e.fresh, e.data, e.in = pieces, int64(len(literal)), blob.DeflateSmall(literal), like
	return e
}

// stored is the list of pieces, with the row of the content that was stored in the same
// transaction.
func (e *encoded) stored() []delta.Piece {
	if e.in == nil {
		return e.pieces
	}
	pieces := slices.Clone(e.pieces)
	for i := range pieces {
		if pieces[i].Segment == inBatch {
			pieces[i].Segment = e.in.rowID
		}
	}
	return pieces
}

// whole makes a content independent of others.
func (e *encoded) whole() {
	e.pieces, e.was, e.wasID, e.in = nil, "", 0, nil
	e.fresh, e.data = e.size, blob.DeflateSmall(e.raw)
}

func usesOf(pieces []delta.Piece) []int64 {
	var ids []int64
	seen := map[int64]bool{itself: true}
	for _, p := range pieces {
		if !seen[p.Segment] {
			seen[p.Segment] = true
			ids = append(ids, p.Segment)
		}
	}
	return ids
}
