package journal

import (
	"fmt"

	"github.com/ckptsidecar/ckptsidecar/internal/db/blob"
	"github.com/ckptsidecar/ckptsidecar/internal/fleet"
)

// segmentsOf returns the segments of a run by their ids.
func segmentsOf(r *fleet.LostRun) map[int64]*fleet.Segment {
	all := make(map[int64]*fleet.Segment, len(r.Segments))
	for i := range r.Segments {
		all[r.Segments[i].ID] = &r.Segments[i]
	}
	return all
}

// stateOf builds a state from its pieces.
func stateOf(segments map[int64]*fleet.Segment, c *fleet.Checkpoint) ([]byte, error) {
	row := &blob.StateRow{N: c.N, ID: c.ID, Size: c.Size, SHA256: c.SHA256, Body: c.Body, Pieces: c.Pieces}
	return blob.Join(row, inflated(segments))
}

// inflated returns the bytes of segments.
func inflated(segments map[int64]*fleet.Segment) func(id int64) ([]byte, error) {
	return func(id int64) ([]byte, error) {
		s, there := segments[id]
		if !there {
			return nil, fmt.Errorf("segment %d is missing", id)
		}
		return blob.Inflate(s.Data, s.Size)
	}
}
