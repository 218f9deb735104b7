package copy

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"strconv"
	"strings"

	"github.com/jmoiron/sqlx"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db/blob"
	"github.com/ckptsidecar/ckptsidecar/internal/jsontext"
)

// This file puts rows that come as lines of JSON into a file, which is then imported as an export: rows that a fleet
// kept, and runs that were made from files of other programs. Lines come in this order for each agent: the agent, its
// checkpoints in the order in which they were saved, and each run with the rows that belong to it.

// exportLine is any line.
type exportLine struct {
	Type    string `json:"type"`
	Version int    `json:"version,omitempty"`

	// For an agent.
	Agent     string          `json:"agent,omitempty"`
	Owner     string          `json:"owner,omitempty"`
	CreatedAt *ckpt.Time      `json:"created_at,omitempty"`
	PolicyAt  *ckpt.Time      `json:"policy_at,omitempty"`
	Policy    json.RawMessage `json:"policy,omitempty"`

	// For a run and its rows. Run is its name; lives after the first have a number: main#2.
	Run        string          `json:"run,omitempty"`
	OwnerAlive bool            `json:"owner_alive,omitempty"`
	Unscreened bool            `json:"unscreened,omitempty"` // it comes from another program and was not screened for secrets
	Row        json.RawMessage `json:"row,omitempty"`
	State      json.RawMessage `json:"state,omitempty"`        // a JSON state on one line, byte for byte
	Base64     *string         `json:"state_base64,omitempty"` // any other state
	Kind       string          `json:"kind,omitempty"`         // the kind of a damaged row
	Reason     string          `json:"reason,omitempty"`

	// For the last line.
	Lines  int64  `json:"lines,omitempty"`
	SHA256 string `json:"sha256,omitempty"` // of all lines before it
}

// staging puts lines into a file.
type staging struct {
	ctx   context.Context
	to    *sqlx.Conn
	said  manifest
	n     int64 // checkpoints so far
	agent int64
	open  string           // the run whose rows come
	runs  map[string]int64 // of the agent, by what lines call them
	told  map[string]bool  // those whose line has come
	last  int64            // run
	once  map[string]bool  // ids
}

func (s *Copier) stageLines(ctx context.Context, path string, body io.Reader) error {
	return makeFile(ctx, path, s.Opt.Now(), func(to *sqlx.Conn) (*manifest, error) {
		g := &staging{ctx: ctx, to: to, said: manifest{Version: exportVersion, Damaged: map[int64]string{}}, once: map[string]bool{}}
		return &g.said, g.read(body)
	})
}

// read reads all lines.
func (g *staging) read(body io.Reader) error {
	in, sum := bufio.NewReaderSize(body, 256<<10), sha256.New()
	for number := int64(1); ; number++ {
		b, err := in.ReadBytes('\n')
		switch {
		case err == io.EOF && len(b) == 0:
			return refused("the export ends after line %d without its last line: it was cut off", number-1)
		case err == io.EOF:
			return refused("line %d of the export is cut off", number)
		case err != nil:
			return notWhole(err)
		}
		var line exportLine
		err = jsontext.Decode(bytes.TrimRight(b, "\n"), &line)
		if err == nil && line.Type == lineEnd {
			if line.Lines != number-1 || line.SHA256 != hex.EncodeToString(sum.Sum(nil)) {
				return refused("the export was changed: its checksum does not match")
			}
			if _, err := in.ReadByte(); err != io.EOF {
				return refused("line %d comes after the end of the export", number+1)
			}
			if err := g.endAgent(); err != nil && g.ctx.Err() == nil {
				return refused("the export is wrong: %v", plain(err))
			}
			return g.ctx.Err()
		}
		if err == nil {
			err = g.line(number, &line)
		}
		if err != nil && g.ctx.Err() == nil {
			err = refused("line %d of the export is wrong: %v", number, strings.ReplaceAll(plain(err).Error(), "\n", " "))
		}
		if err != nil {
			return err
		}
		sum.Write(b)
	}
}

func (g *staging) line(number int64, line *exportLine) error {
	switch {
	case number == 1 && (line.Type != lineBegin || line.Version != exportVersion):
		return fmt.Errorf("it must have the type %q and the version %d", lineBegin, exportVersion)
	case number == 1:
		return nil
	case line.Type == lineAgent:
		return g.beginAgent(line)
	case g.agent == 0:
		return errors.New("it comes before the first agent")
	}
	run, err := g.run(line.Run)
	if err != nil {
		return err
	}
	switch line.Type {
	case lineCheckpoint:
		return g.checkpoint(line, run)
	case lineDamaged:
		g.said.Damaged[run] = cut(line.Kind) + " " + cut(line.Reason)
		return nil
	case lineRun:
		return g.runRow(line, run)
	}
	t := tableOf(line.Type)
	switch {
	case t == nil:
		return fmt.Errorf("it has the unknown type %q", cut(line.Type))
	case g.open != line.Run:
		return fmt.Errorf("it belongs to run %s, whose line must come first", line.Run)
	}
	return g.row(t, line.Row, map[string]any{"run_id": run, "agent_id": g.agent})
}

func (g *staging) beginAgent(line *exportLine) error {
	if err := g.endAgent(); err != nil {
		return err
	}
	if line.CreatedAt == nil || line.CreatedAt.IsZero() || line.PolicyAt == nil || line.PolicyAt.IsZero() {
		return errors.New("created_at or policy_at is missing")
	}
	g.agent++
	g.open, g.runs, g.told = "", map[string]int64{}, map[string]bool{}
	_, err := g.to.ExecContext(g.ctx, `INSERT INTO agents (id, owner, name, created_at, policy, policy_at) VALUES (?, ?, ?, ?, ?, ?)`,
		g.agent, line.Owner, line.Agent, line.CreatedAt.String(), string(line.Policy), line.PolicyAt.String())
	return err
}

// run is the number of a run in the file.
func (g *staging) run(key string) (int64, error) {
	if id, met := g.runs[key]; met {
		return id, nil
	}
	base, life, later := strings.Cut(key, "#")
	if err := ckpt.CheckRunName(base); err != nil {
		return 0, err
	}
	if n, err := strconv.ParseInt(life, 10, 64); later && (err != nil || n < 2 || strconv.FormatInt(n, 10) != life) {
		return 0, fmt.Errorf("%q names no life of a run", cut(key))
	}
	g.last++
	g.runs[key] = g.last
	return g.last, nil
}

func (g *staging) runRow(line *exportLine, run int64) error {
	if g.told[line.Run] {
		return fmt.Errorf("run %s comes twice", line.Run)
	}
	g.told[line.Run], g.open = true, line.Run
	if line.OwnerAlive {
		g.said.Alive = append(g.said.Alive, run)
	}
	if line.Unscreened {
		g.said.Unscreened = append(g.said.Unscreened, run)
	}
	return g.row(runs, line.Row, map[string]any{"id": run, "agent_id": g.agent, "name": line.Run})
}

// row puts a row into a table, with values that lines do not have.
func (g *staging) row(t *table, text []byte, more map[string]any) error {
	values, err := t.parseRow(text)
	if err != nil {
		return err
	}
	if err := sumOfWrite(t, values); err != nil {
		return err
	}
	var names []string
	var args []any
	for i := range t.columns {
		c := &t.columns[i]
		v := values[i]
		if !inLine(c) {
			v = more[c.name]
		}
		if c.isOwn {
			id, _ := v.(string)
			if g.once[id] {
				return fmt.Errorf("the id %s comes twice", cut(id))
			}
			g.once[id] = true
		}
		if v != nil {
			names, args = append(names, c.name), append(args, v)
		}
	}
	_, err = g.to.ExecContext(g.ctx, `INSERT INTO `+t.name+` (`+strings.Join(names, ", ")+`) VALUES (?`+strings.Repeat(", ?", len(names)-1)+`)`, args...)
	return err
}

func (g *staging) checkpoint(line *exportLine, run int64) error {
	state := []byte(line.State)
	if line.Base64 != nil {
		var err error
		if state, err = base64.StdEncoding.DecodeString(*line.Base64); err != nil {
			return errors.New("state_base64 is not base64")
		}
	}
	g.n++
	e := blob.Encode(state)
	body, fresh, data := e.Parts()
	more := map[string]any{"run_id": run, "n": g.n, "slot": run<<32 | g.n, "stored_size": e.Stored()}
	if body != nil {
		more["body"] = body
	} else {
		more["pieces"] = fmt.Sprintf("[[%d,0,%d]]", g.n, e.Size)
		_, err := g.to.ExecContext(g.ctx, `INSERT INTO segments (id, run_id, size, data) VALUES (?, ?, ?, ?)`, g.n, run, fresh, data)
		if err != nil {
			return err
		}
	}
	return g.row(checkpoints, line.Row, more)
}

// endAgent gives the lives of runs their names.
func (g *staging) endAgent() error {
	for key := range g.runs {
		if !g.told[key] {
			return refused("run %s has no line of its own", key)
		}
	}
	_, err := g.to.ExecContext(g.ctx, `UPDATE runs SET name = CASE WHEN later = 0 THEN main ELSE main || '~' || later END
		FROM (SELECT r.id AS was, substr(r.name, 1, instr(r.name || '#', '#') - 1) AS main, (SELECT count(*) FROM runs o WHERE o.agent_id = r.agent_id
			AND substr(o.name, 1, instr(o.name || '#', '#') - 1) = substr(r.name, 1, instr(r.name || '#', '#') - 1) AND o.life > r.life) AS later
			FROM runs r WHERE r.agent_id = ?1) WHERE id = was`, g.agent)
	return err
}

// LineWriter writes rows as lines.
type LineWriter struct {
	out   *bufio.Writer
	sum   hash.Hash
	lines int64
	err   error

	// Damaged, if set, is called for each checkpoint that is left out because its state cannot be
	// read or does not match its hash.
	Damaged func(run, id string, seq int64, err error)
}

// NewLineWriter begins the lines.
func NewLineWriter(w io.Writer) *LineWriter {
	x := &LineWriter{out: bufio.NewWriterSize(w, 64<<10), sum: sha256.New()}
	x.line(&exportLine{Type: lineBegin, Version: exportVersion})
	return x
}

func (x *LineWriter) line(l *exportLine) {
	b, err := json.Marshal(l)
	if err != nil && x.err == nil {
		x.err = err
	}
	x.text(b)
}

// text writes the parts of a line.
func (x *LineWriter) text(parts ...[]byte) {
	x.lines++
	for _, b := range append(parts, []byte("\n")) {
		if x.err == nil {
			x.sum.Write(b)
			_, x.err = x.out.Write(b)
		}
	}
}

// row writes the line of a row by hand, because encoding/json would change the bytes of the JSON in it.
func (x *LineWriter) row(kind, run, row string, more ...[]byte) {
	parts := [][]byte{fmt.Appendf(nil, `{"type":%q,"run":%s,"row":%s`, kind, asJSON(run), row)}
	x.text(append(append(parts, more...), []byte("}"))...)
}

// Agent writes the line of an agent.
func (x *LineWriter) Agent(text string) { x.text([]byte(text)) }

// Run writes a run. inDoubt means that it is not known what the run did afterwards.
func (x *LineWriter) Run(name, row string, inDoubt bool) {
	var alive []byte
	if inDoubt {
		alive = []byte(`,"owner_alive":true`)
	}
	x.row(lineRun, name, row, alive)
}

// Row writes a row of the run of the last call of Run.
func (x *LineWriter) Row(kind, run, row string) { x.row(kind, run, row) }

// Checkpoint writes a checkpoint, or records that it is damaged. Run must be called for its run
// after it.
func (x *LineWriter) Checkpoint(run, row string, seq int64, state *blob.StateRow, inflated func(segment int64) ([]byte, error)) {
	data, err := blob.Join(state, inflated)
	if err != nil {
		x.Lost(run, state.ID, seq, err)
		return
	}
	x.row(lineCheckpoint, run, row, []byte(`,"state_base64":"`), base64.StdEncoding.AppendEncode(nil, data), []byte(`"`))
}

// Lost records that a checkpoint is damaged.
func (x *LineWriter) Lost(run, id string, seq int64, err error) {
	x.line(&exportLine{Type: lineDamaged, Run: run, Kind: lineCheckpoint, Row: fmt.Appendf(nil, `{"id":%s,"seq":%d}`, asJSON(id), seq),
		Reason: plain(err).Error()})
	if x.Damaged != nil {
		x.Damaged(run, id, seq, err)
	}
}

// End ends the lines.
func (x *LineWriter) End() error {
	x.line(&exportLine{Type: lineEnd, Lines: x.lines, SHA256: hex.EncodeToString(x.sum.Sum(nil))})
	if x.err == nil {
		x.err = x.out.Flush()
	}
	return x.err
}
