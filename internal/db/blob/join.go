package blob

import (
	"fmt"

	"github.com/ckptsidecar/ckptsidecar/internal/delta"
)

// Join builds a state from a body, or from pieces of segments that inflate returns. It checks the
// hash.
func Join(r *StateRow, inflate func(segment int64) ([]byte, error)) ([]byte, error) {
	pieces, err := r.pieces()
	if err != nil {
		return nil, err
	}
	segments := map[int64][]byte{}
	for _, p := range pieces {
		if _, there := segments[p.Segment]; there {
			continue
		}
		if segments[p.Segment], err = inflate(p.Segment); err != nil {
			return nil, err
		}
	}
	return r.join(pieces, segments)
}

// pieces is nil if the state is a body.
func (r *StateRow) pieces() ([]delta.Piece, error) {
	if r.Pieces == nil {
		return nil, nil
	}
	return ReadPieces(*r.Pieces)
}

func (r *StateRow) join(pieces []delta.Piece, segments map[int64][]byte) ([]byte, error) {
	state := r.Body
	if r.Pieces != nil {
		var err error
		if state, err = r.assemble(pieces, segments); err != nil {
			return nil, err
		}
	}
	if HashOf(state) != r.SHA256 {
		return nil, r.damage("its hash does not match")
	}
	return state, nil
}

// assemble copies nothing if the state is one piece.
func (r *StateRow) assemble(pieces []delta.Piece, segments map[int64][]byte) ([]byte, error) {
	length := int64(0)
	for _, p := range pieces {
		bytes, ok := segments[p.Segment]
		switch {
		case !ok:
			return nil, r.damage(fmt.Sprintf("segment %d is missing", p.Segment))
		case p.Offset > int64(len(bytes))-p.Length:
			return nil, r.damage(fmt.Sprintf("segment %d is too short", p.Segment))
		}
		if length += p.Length; length > r.Size {
			return nil, r.damage("its pieces are larger than its size")
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

func (r *StateRow) damage(what string) *DamageError {
	return &DamageError{What: what, ID: r.ID, N: r.N}
}
