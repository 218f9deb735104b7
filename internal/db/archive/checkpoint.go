package archive

import (
	"database/sql"
	"encoding/json"
	"strings"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db/blob"
)

// checkpointSeen is a checkpoint that was read from an export.
type checkpointSeen struct {
	request   *ckpt.SaveRequest
	seq       int64
	createdAt ckpt.Time
	operation ckpt.Ref
	program   string // in its stored form
	pinned    bool
	suspect   bool
	stateOf   sql.NullInt64
	sha256    string
	size      int64
	state     blob.Encoded
}

// readCheckpoint reads the checkpoint of a line, with the save that corresponds to it.
func readCheckpoint(l *exportLine) (*checkpointSeen, error) {
	row, err := checkpoints.parseRow(l.Row)
	if err != nil {
		return nil, err
	}
	state, err := l.state()
	if err != nil {
		return nil, err
	}
	t := checkpoints
	c := &checkpointSeen{seq: t.whole(row, "seq"), operation: ckpt.Ref(t.text(row, "operation")),
		program: t.text(row, "program"), pinned: t.whole(row, "pinned") == 1,
		suspect: t.whole(row, "suspect") == 1, sha256: t.text(row, "sha256"), size: t.whole(row, "size")}
	c.stateOf.Int64, c.stateOf.Valid = t.at(row, "state_of").(int64)
	base, _, _ := strings.Cut(l.Run, "#")
	c.request = &ckpt.SaveRequest{ID: t.text(row, "id"), Agent: "x", Run: base, Kind: ckpt.Kind(t.text(row, "kind")),
		Parent: ckpt.Ref(t.text(row, "parent")),
		Step:   ckpt.Ref(t.text(row, "step")), Metadata: json.RawMessage(t.text(row, "metadata")),
		ContentType: t.text(row, "content_type"), State: state}
	if c.createdAt, err = ckpt.ParseTime(t.text(row, "created_at")); err != nil {
		return nil, err
	}
	if c.request.Labels, err = readLabels(t.text(row, "labels")); err != nil {
		return nil, err
	}
	if c.program != "" {
		c.request.Program = &ckpt.Program{}
		err = json.Unmarshal([]byte(c.program), c.request.Program)
	}
	return c, err
}

func readLabels(text string) (l ckpt.Labels, err error) {
	if text == "" || text == "{}" {
		return nil, nil
	}
	return l, json.Unmarshal([]byte(text), (*map[string]string)(&l))
}
