package blob

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db/sqlite"
	"github.com/ckptsidecar/ckptsidecar/internal/delta"
	"github.com/jmoiron/sqlx"
)

// StateRow is what a state is read back from.
type StateRow struct {
	N      int64   `db:"n"`
	ID     string  `db:"id"`
	Size   int64   `db:"size"`
	SHA256 string  `db:"sha256"`
	Body   []byte  `db:"body"`
	Pieces *string `db:"pieces"`
}

// segment is a row of the table segments.
type segment struct {
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
		damage = &DamageError{What: "its hash does not match"}
		err = damage
	}
	if damage != nil {
		damage.ID, damage.N = r.ID, r.N
	}
	return nil, ckpt.Wrap(ckpt.CodeCorrupt, err,
		"checkpoint %s is damaged and is not served: %s; run ckptsidecar verify, and restore another", r.ID, err)
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
	var rows []segment
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
