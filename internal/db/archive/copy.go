package archive

import (
	"context"
	"encoding/json"
	"fmt"
	"io"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db/blob"
)

// This file restores agents from single rows that were kept elsewhere: the reverse of rows.go.

// Kept are the identities of agents and runs that an import keeps: by the agent's name, and by its
// name and the run's.
type Kept struct {
	Agents map[string]string
	Runs   map[[2]string]KeptRun
}

// KeptRun is the identity of a run, and the epoch with which it continues.
type KeptRun struct {
	UID   string
	Epoch int64
}

// ImportKept is Import that keeps identities. Only a host that restores its own rows may use it, so
// no request can.
func (s *Archive) ImportKept(ctx context.Context, sc ckpt.Scope, body io.Reader, kept Kept) (*ckpt.ImportReport, error) {
	return s.imports(ctx, sc, ckpt.ImportRequest{}, body, kept)
}

// keepRun returns the uid that a run must keep, and sets the epoch with which it continues in its
// row.
func (im *importing) keepRun(agent, run string, row []any) (uid any) {
	k, is := im.kept.Runs[[2]string{agent, run}]
	if !is {
		return nil
	}
	row[runs.place("epoch")] = k.Epoch
	return k.UID
}

// CopyWriter writes an export from rows that were kept elsewhere.
type CopyWriter struct {
	x *exporter

	// Damaged, if set, is called for each checkpoint that is left out because its state cannot be
	// read or does not match its hash.
	Damaged func(run, id string, seq int64, err error)
}

// NewCopyWriter begins an export.
func NewCopyWriter(w io.Writer) *CopyWriter {
	x := newExporter(w)
	x.line(&exportLine{Type: lineBegin, Version: exportVersion})
	return &CopyWriter{x: x}
}

// Agent writes the line of an agent.
func (c *CopyWriter) Agent(text string) { c.x.text(lineAgent, []byte(text), []byte("\n")) }

// Run writes a run. inDoubt means that it is not known what the run did afterwards.
func (c *CopyWriter) Run(name, row string, inDoubt bool) {
	var alive []byte
	if inDoubt {
		alive = []byte(`,"owner_alive":true`)
	}
	c.x.rowLine(lineRun, name, []byte(row), alive)
}

// Row writes a row of the run of the last call of Run.
func (c *CopyWriter) Row(kind, run, row string) { c.x.rowLine(kind, run, []byte(row)) }

// Checkpoint writes a checkpoint, or records that it is damaged. Run must be called for its run
// after it.
func (c *CopyWriter) Checkpoint(run, row string, seq int64, state *blob.StateRow, segments map[int64]KeptSegment) {
	bytes, err := blob.Join(state, func(id int64) ([]byte, error) {
		s, there := segments[id]
		if !there {
			return nil, fmt.Errorf("segment %d is missing", id)
		}
		return blob.Inflate(s.Data, s.Size)
	})
	var kind struct {
		ContentType string `json:"content_type"`
	}
	if err == nil {
		err = json.Unmarshal([]byte(row), &kind)
	}
	if err != nil {
		c.Lost(run, state.ID, seq, err)
		return
	}
	c.x.checkpoint(&ckpt.Checkpoint{Run: run, ContentType: kind.ContentType, State: bytes}, []byte(row))
}

// Lost records that a checkpoint is damaged.
func (c *CopyWriter) Lost(run, id string, seq int64, err error) {
	c.x.damaged(run, lineCheckpoint, id, seq, err)
	if c.Damaged != nil {
		c.Damaged(run, id, seq, err)
	}
}

// KeptSegment is a stored segment.
type KeptSegment struct {
	Size int64
	Data []byte
}

// End ends the export.
func (c *CopyWriter) End() error { return c.x.end() }
