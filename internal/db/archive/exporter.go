package archive

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"hash"
	"io"
	"slices"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db/ledger"
)

// exporting is the export of one agent. States are read on snapshots of their own, so that a slow
// reader holds no snapshot for long. Everything else is read on one last snapshot and put aside,
// together with what has changed about the checkpoints in the meantime.
type exporting struct {
	store   *Archive
	agent   *ledger.AgentRow
	run     string // "" for all
	bare    bool   // without files
	x       *exporter
	written map[string]mark // the checkpoints that were written, by id
	last    int64           // the place of the last
	order   []savedRow      // what comes next, in the order of all saves
}

// exporter writes lines and hashes them, all lines together and each kind separately.
type exporter struct {
	out    *bufio.Writer
	sum    hash.Hash
	lines  int64
	kinds  map[string]*kindCount
	damage []error // damage that was found and is not reported yet
	err    error
}

func newExporter(w io.Writer) *exporter {
	return &exporter{out: bufio.NewWriterSize(w, 64<<10), sum: sha256.New(), kinds: map[string]*kindCount{}}
}

// divert writes to another place until the returned function is called.
func (x *exporter) divert(w io.Writer) (back func() error) {
	was := x.out
	x.out = bufio.NewWriterSize(w, 64<<10)
	return func() error {
		if x.err == nil {
			x.err = x.out.Flush()
		}
		x.out = was
		return x.err
	}
}

// copy writes lines that were put aside, and are already counted.
func (x *exporter) copy(from io.Reader) error {
	if x.err == nil {
		_, x.err = io.Copy(x.out, from)
	}
	return x.err
}

func (x *exporter) line(l *exportLine) {
	b, err := json.Marshal(l)
	if err != nil {
		x.fail(err)
		return
	}
	x.text(l.Type, append(b, '\n'))
}

// text writes a line of a kind.
func (x *exporter) text(kind string, parts ...[]byte) {
	k := x.kinds[kind]
	if k == nil {
		k = &kindCount{sum: sha256.New()}
		x.kinds[kind] = k
	}
	x.lines++
	k.lines++
	for _, b := range parts {
		if x.err != nil {
			return
		}
		x.sum.Write(b)
		k.sum.Write(b)
		_, x.err = x.out.Write(b)
	}
}

func (x *exporter) fail(err error) {
	if x.err == nil {
		x.err = err
	}
}

// row writes a stored row of a run. If the row is damaged, it writes a line that names it instead.
func (x *exporter) row(t *table, run string, values []any) {
	var err error
	if t.read != nil {
		values, err = t.read(values)
	}
	var text []byte
	if err == nil {
		text, err = t.appendRow(nil, values)
	}
	if err != nil {
		key, _ := values[0].(string)
		x.damaged(run, t.kind, key, 0, err)
		return
	}
	x.rowLine(t.kind, run, text)
}

// rowLine writes the line of a row by hand, because encoding/json would change the bytes of the
// JSON in it.
func (x *exporter) rowLine(kind, run string, row []byte, more ...[]byte) {
	b := append([]byte(`{"type":"`), kind...)
	b = ledger.AppendString(append(b, `","run":`...), run)
	b = append(b, `,"row":`...)
	x.text(kind, slices.Concat([][]byte{b, row}, more, [][]byte{[]byte("}\n")})...)
}

// damaged writes a line about a row that cannot be read.
func (x *exporter) damaged(run, kind, id string, seq int64, err error) {
	row, failed := json.Marshal(struct {
		ID  string `json:"id,omitempty"`
		Seq int64  `json:"seq,omitempty"`
	}{id, seq})
	if failed != nil {
		x.fail(failed)
	}
	x.line(&exportLine{Type: lineDamaged, Run: run, Kind: kind, Row: row, Reason: plain(err).Error()})
}

func (x *exporter) checkpoint(c *ckpt.Checkpoint, row []byte) {
	if !ckpt.IsJSON(c.ContentType) || bytes.ContainsAny(c.State, "\r\n") || len(bytes.TrimSpace(c.State)) != len(c.State) || len(c.State) == 0 {
		text := base64.StdEncoding.AppendEncode(nil, c.State)
		x.rowLine(lineCheckpoint, c.Run, row, []byte(`,"state_base64":"`), text, []byte(`"`))
		return
	}
	x.rowLine(lineCheckpoint, c.Run, row, []byte(`,"state":`), c.State)
}

func (x *exporter) end() error {
	l := exportLine{Type: lineEnd, Lines: x.lines, Kinds: map[string]kindSums{}, SHA256: hex.EncodeToString(x.sum.Sum(nil))}
	for kind, k := range x.kinds {
		l.Kinds[kind] = kindSums{k.lines, hex.EncodeToString(k.sum.Sum(nil))}
	}
	x.line(&l)
	if x.err == nil {
		x.err = x.out.Flush()
	}
	return x.err
}

// savedRow is the row of a checkpoint, and its place in the order of all saves.
type savedRow struct {
	Slot int64 `db:"slot"`
	N    int64 `db:"n"`
}

// mark is what can change about a checkpoint.
type mark struct {
	run     string
	labels  string
	pinned  bool
	suspect bool
}
