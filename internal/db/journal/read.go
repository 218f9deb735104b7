package journal

import (
	"errors"
	"fmt"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db/archive"
	"github.com/ckptsidecar/ckptsidecar/internal/db/blob"
	"github.com/ckptsidecar/ckptsidecar/internal/db/ledger"
	"github.com/ckptsidecar/ckptsidecar/internal/fleet"
)

// ReadCheckpoint is a checkpoint of the engine that was opened, with its state where it
// was read. The state is checked against its hash.
func ReadCheckpoint(h *fleet.HeldCheckpoint, state bool) (*ckpt.Checkpoint, error) {
	held := &h.Checkpoints[0]
	if held.Damage != "" {
		return nil, errors.New(held.Damage)
	}
	c, err := archive.ReadCheckpoint(held.Doc)
	if err != nil {
		return nil, err
	}
	c.Owner, c.Agent, c.Run, c.Suspect = h.Owner, h.Agent, h.Run, held.Suspect
	if state {
		c.State, err = stateOf(segmentsOf(&h.LostRun), held)
	}
	return c, err
}

// segmentsOf are the segments of a run, by their ids.
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
	return blob.Join(row, func(id int64) ([]byte, error) {
		s, there := segments[id]
		if !there {
			return nil, fmt.Errorf("segment %d is missing", id)
		}
		return blob.Inflate(s.Data, s.Size)
	})
}

// ReadPrompt is a prompt of the engine that was opened, as it is at a moment.
func ReadPrompt(h *fleet.HeldRow, now ckpt.Time) (*ckpt.Prompt, error) {
	p, err := archive.ReadPrompt(h.Doc)
	if err != nil {
		return nil, err
	}
	p.Owner, p.Agent, p.Run = h.Owner, h.Agent, h.Run
	p.Status = p.StatusAt(now, ledger.Daemon)
	return p, nil
}
