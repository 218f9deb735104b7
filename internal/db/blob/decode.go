package blob

import (
	"context"
	"errors"
	"fmt"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db/sqlite"
	"github.com/ckptsidecar/ckptsidecar/internal/delta"
	"github.com/jmoiron/sqlx"
)

// StateRow has the columns from which a state is read back.
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

// Decode puts a state together and checks its hash. It never returns a state with a wrong hash.
func Decode(ctx context.Context, q sqlx.QueryerContext, r *StateRow) ([]byte, error) {
	state, err := read(ctx, q, r)
	var damage *DamageError
	switch {
	case err == nil:
		return state, nil
	case !errors.As(err, &damage):
		return nil, sqlite.ReadError(err)
	}
	damage.ID, damage.N = r.ID, r.N
	return nil, ckpt.Wrap(ckpt.CodeCorrupt, err,
		"checkpoint %s is damaged and is not served: %s; run ckptsidecar verify, and restore another", r.ID, err)
}

func read(ctx context.Context, q sqlx.QueryerContext, r *StateRow) ([]byte, error) {
	pieces, err := r.pieces()
	if err != nil {
		return nil, err
	}
	segments, err := loadSegments(ctx, q, pieces)
	if err != nil {
		return nil, err
	}
	return r.join(pieces, segments)
}

// loadSegments reads and inflates all segments that a list names, with one query.
func loadSegments(ctx context.Context, q sqlx.QueryerContext, pieces []delta.Piece) (map[int64][]byte, error) {
	if len(pieces) == 0 {
		return nil, nil
	}
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
