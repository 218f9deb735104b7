package archive

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"hash"
	"io"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db/driftlog"
	"github.com/ckptsidecar/ckptsidecar/internal/db/ledger"
	"github.com/ckptsidecar/ckptsidecar/internal/db/sqlite"
	"github.com/jmoiron/sqlx"
)

// An export is NDJSON: one line that begins it, one for each checkpoint with
// its state, oldest first, and one that ends it with the number of lines and
// the SHA-256 of all the bytes before. Without the last line it is not whole.
const (
	exportVersion  = 1
	lineBegin      = "ckptsidecar_export"
	lineCheckpoint = "checkpoint"
	lineDamaged    = "damaged" // a checkpoint that cannot be read, in its place, and why
	lineEnd        = "end"
)

// exportLine is any line of an export.
type exportLine struct {
	Type       string           `json:"type"`
	Version    int              `json:"version,omitempty"`
	Agent      string           `json:"agent,omitempty"`
	Owner      string           `json:"owner,omitempty"`
	ExportedAt *ckpt.Time       `json:"exported_at,omitempty"`
	Policy     json.RawMessage  `json:"policy,omitempty"`
	Checkpoint *ckpt.Checkpoint `json:"checkpoint,omitempty"`
	State      json.RawMessage  `json:"state,omitempty"`        // a JSON state on one line, byte for byte
	Base64     *string          `json:"state_base64,omitempty"` // any other
	Reason     string           `json:"reason,omitempty"`
	Lines      int64            `json:"lines,omitempty"`
	SHA256     string           `json:"sha256,omitempty"`
}

// Export writes all of an agent's checkpoints.
func (s *Archive) Export(ctx context.Context, sc ckpt.Scope, name string, w io.Writer) error {
	agent, err := s.FindAgent(ctx, sc, name)
	if err != nil {
		return err
	}
	e := ledger.Entry(sc, "export", name)
	if err := s.Submit(&ledger.Op{Owner: sc.Caller.Owner, Claim: sqlite.GoesOn, Do: func(tx *ledger.Tx) error { return tx.Audit(e) }}); err != nil {
		return err
	}
	x := newExporter(w)
	policy, err := json.Marshal(agent.Settings)
	if err != nil {
		return err
	}
	now := ckpt.At(s.Opt.Now())
	x.line(exportLine{Type: lineBegin, Version: exportVersion, Agent: agent.Name, Owner: agent.Owner, ExportedAt: &now, Policy: policy})
	for last := int64(0); x.err == nil; {
		rows, err := s.exportSome(ctx, agent.ID, last, x)
		if err != nil {
			return err
		}
		if len(rows) == 0 {
			break
		}
		last = rows[len(rows)-1].N
	}
	return x.end()
}

// exportAtOnce is how many checkpoints are read on one snapshot.
const exportAtOnce = 32

func (s *Archive) exportSome(ctx context.Context, agentID, last int64, x *exporter) ([]ledger.ReadRow, error) {
	var rows []ledger.ReadRow
	var damage []error
	err := s.Reading(ctx, func(q *sqlx.Tx) error {
		err := q.SelectContext(ctx, &rows, `SELECT `+ledger.ReadColumns+ledger.StateColumns+ledger.ReadTables+`WHERE a.id = ? AND c.n > ? ORDER BY c.n LIMIT ?`, agentID, last, exportAtOnce)
		if err != nil {
			return err
		}
		for i := range rows {
			c, err := ledger.WithState(ctx, q, &rows[i], true)
			if ckpt.CodeOf(err) == ckpt.CodeCorrupt {
				s.Log.Warn("a damaged checkpoint was left out of an export", "checkpoint", rows[i].ID, "error", err)
				x.damaged(&rows[i], c, err)
				damage = append(damage, err)
				continue
			}
			if err != nil {
				return err
			}
			x.checkpoint(c)
		}
		return nil
	})
	for _, err := range damage {
		s.ReportDamage(err)
	}
	return rows, err
}

// exporter writes lines and hashes what it wrote.
type exporter struct {
	out   *bufio.Writer
	sum   hash.Hash
	lines int64
	err   error
}

func newExporter(w io.Writer) *exporter {
	return &exporter{out: bufio.NewWriterSize(w, 64<<10), sum: sha256.New()}
}

func (x *exporter) line(l exportLine) {
	b, err := json.Marshal(l)
	if err != nil {
		x.fail(err)
		return
	}
	x.bytes(append(b, '\n'))
	x.lines++
}

func (x *exporter) bytes(b []byte) {
	if x.err != nil {
		return
	}
	x.sum.Write(b)
	_, x.err = x.out.Write(b)
}

func (x *exporter) fail(err error) {
	if x.err == nil {
		x.err = err
	}
}

// damaged writes what is known of a checkpoint that cannot be read.
func (x *exporter) damaged(row *ledger.ReadRow, c *ckpt.Checkpoint, err error) {
	if c == nil {
		c = &ckpt.Checkpoint{ID: row.ID, Run: row.Run, Seq: row.Seq, Kind: row.Kind, CreatedAt: row.CreatedAt.Value}
	}
	x.line(exportLine{Type: lineDamaged, Checkpoint: c, Reason: ckpt.AsError(err).Message})
}

// checkpoint writes the line by hand around a JSON state, whose bytes
// encoding/json would not leave alone.
func (x *exporter) checkpoint(c *ckpt.Checkpoint) {
	if !ckpt.IsJSON(c.ContentType) || bytes.ContainsAny(c.State, "\r\n") || len(bytes.TrimSpace(c.State)) != len(c.State) {
		text := base64.StdEncoding.EncodeToString(c.State)
		x.line(exportLine{Type: lineCheckpoint, Checkpoint: c, Base64: &text})
		return
	}
	b, err := json.Marshal(exportLine{Type: lineCheckpoint, Checkpoint: c})
	if err != nil {
		x.fail(err)
		return
	}
	x.bytes(append(b[:len(b)-1], `,"state":`...))
	x.bytes(c.State)
	x.bytes([]byte("}\n"))
	x.lines++
}

func (x *exporter) end() error {
	l := exportLine{Type: lineEnd, Lines: x.lines, SHA256: hex.EncodeToString(x.sum.Sum(nil))}
	x.line(l)
	if x.err == nil {
		x.err = x.out.Flush()
	}
	return x.err
}

// Archive exports and imports.
type Archive struct {
	*driftlog.Drifts
	// graphImported notes a checkpoint of LangGraph that came by an import.
	graphImported func(tx *ledger.Tx, agent *ledger.AgentRow, run *ledger.RunRow, n int64, state []byte) error
}

// New exports and imports. graphImported notes a checkpoint of LangGraph that came
// by an import.
func New(d *driftlog.Drifts, graphImported func(*ledger.Tx, *ledger.AgentRow, *ledger.RunRow, int64, []byte) error) *Archive {
	return &Archive{d, graphImported}
}
