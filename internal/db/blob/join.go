package blob

// Join puts a state together from a body, or from pieces of segments that inflate
// gives. It checks the hash.
func Join(r *StateRow, inflate func(segment int64) ([]byte, error)) ([]byte, error) {
	state := r.Body
	if r.Pieces != nil {
		pieces, err := ReadPieces(*r.Pieces)
		if err != nil {
			return nil, err
		}
		state = make([]byte, 0, min(r.Size, 1<<20))
		for _, p := range pieces {
			data, err := inflate(p.Segment)
			if err != nil {
				return nil, err
			}
			if p.Offset > int64(len(data))-p.Length || int64(len(state))+p.Length > r.Size {
				return nil, &DamageError{What: "a segment does not fit", ID: r.ID, N: r.N}
			}
			state = append(state, data[p.Offset:p.Offset+p.Length]...)
		}
	}
	if HashOf(state) != r.SHA256 {
		return nil, &DamageError{What: "its hash does not match", ID: r.ID, N: r.N}
	}
	return state, nil
}
