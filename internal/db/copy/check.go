package copy

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/jmoiron/sqlx"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db/audit"
	"github.com/ckptsidecar/ckptsidecar/internal/db/blob"
	"github.com/ckptsidecar/ckptsidecar/internal/db/ledger"
	"github.com/ckptsidecar/ckptsidecar/internal/db/sqlite"
	"github.com/ckptsidecar/ckptsidecar/internal/wellformed"
)

// incoming is a file that is imported. Nothing in it is trusted before check has accepted it.
type incoming struct {
	path   string
	logged bool // it has a log; rows that came as lines have none
	size   int64
	q      *sqlx.Tx
	done   func()
	said   manifest
	agents []*agentSeen
}

// agentSeen is an agent of a file.
type agentSeen struct {
	id        int64 // in the file
	name      string
	target    string           // the name that it gets here
	secrets   ckpt.SecretsMode // what its policy says here
	owner     string
	createdAt ckpt.Time
	policyAt  ckpt.Time
	policy    []byte
	runs      []*runSeen
}

// runSeen is a run of a file.
type runSeen struct {
	ID         int64          `db:"id"` // in the file
	AgentID    int64          `db:"agent_id"`
	Name       string         `db:"name"`
	Base       string         `db:"base"` // of all its lives
	Life       int64          `db:"life"`
	Status     ckpt.RunStatus `db:"status"`
	StartedAt  string         `db:"started_at"`
	Ended      bool           `db:"ended"`
	Epoch      int64          `db:"epoch"`
	Attempt    int64          `db:"attempt"`
	LastSeq    int64          `db:"last_seq"`
	LastEvent  int64          `db:"last_event"`
	Counts     int64          `db:"counts"` // the highest number of a checkpoint that it names
	Newest     int64          `db:"newest"` // of its checkpoints
	FirstEvent int64          `db:"first_event"`
	Events     int64          `db:"events"`
	NewEvent   int64          `db:"new_event"`

	called     string // what it is called here
	alive      bool
	unscreened bool   // it has not been screened for secrets
	damaged    string // what of it cannot be read, "" if nothing
	arriving          // in a transaction that may be tried again
}

// arriving is what an import notes of a run.
type arriving struct {
	present  bool  // it exists here already
	there    int64 // the id of the run that exists
	disowned bool
	run      *ledger.RunRow // that was made
	old      string         // its newest checkpoint so far: in the file, here, and the row of its save
	parent   string
	parentN  int64
	segments map[int64]placed // by the number in the file; those that the newest checkpoint uses
	closed   map[int64]bool   // segments that no later checkpoint may use
}

const fileMagic = "SQLite format 3\x00"

// stage puts what arrives aside as a database file.
func (s *Copier) stage(ctx context.Context, path string, body io.Reader) (*incoming, error) {
	in := &incoming{path: path}
	head := make([]byte, len(fileMagic))
	n, err := io.ReadFull(body, head)
	if err != nil && err != io.EOF && err != io.ErrUnexpectedEOF {
		return nil, notWhole(err)
	}
	body = io.MultiReader(bytes.NewReader(head[:n]), body)
	switch {
	case string(head) == fileMagic:
		in.logged = true
		err = takeFile(path, body)
	case n > 0 && head[0] == '{':
		err = s.stageLines(ctx, path, body)
	default:
		err = refused("this is not an export of ckptsidecar")
	}
	if err != nil {
		_, _ = io.Copy(io.Discard, body) // a client that still writes would not read the answer
		return nil, err
	}
	info, err := os.Stat(path)
	if err == nil {
		in.size = info.Size()
	}
	return in, err
}

func takeFile(path string, body io.Reader) error {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, body)
	if closed := f.Close(); err == nil {
		err = closed
	}
	return notWhole(err)
}

// notWhole is the error of a body that ended too early.
func notWhole(err error) error {
	var e *ckpt.Error
	if err == nil || errors.As(err, &e) {
		return err
	}
	return ckpt.Wrap(ckpt.CodeInvalid, err, "the import did not arrive completely: nothing was changed; send it again")
}

// refused is the error for a file that is no export, or not whole.
func refused(format string, args ...any) error {
	return ckpt.Errorf(ckpt.CodeInvalid, format+"; nothing was imported", args...)
}

// open opens a file of unknown origin and checks it: first what it is, then its schema, before a view or a table of it
// is read. It only reads, so no trigger of the file runs.
func (in *incoming) open(ctx context.Context) error {
	if err := checkHeader(in.path); err != nil {
		return err
	}
	db, done, err := sqlite.OpenBeside(in.path, 1)
	if err != nil {
		return err
	}
	in.done = done
	if in.q, err = db.BeginTxx(ctx, &sql.TxOptions{ReadOnly: true}); err == nil {
		if _, err = in.q.ExecContext(ctx, `PRAGMA cache_size = -2048`); err == nil {
			err = in.check(ctx)
		}
	}
	var e *ckpt.Error
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		err = sqlite.ReadError(ctx.Err())
	case !errors.As(err, &e):
		err = refused("the export cannot be read: %v", err)
	}
	in.close()
	return err
}

func (in *incoming) close() {
	if in.q != nil {
		_ = in.q.Rollback()
	}
	in.done()
}

// checkHeader reads the first bytes: a file in another journal mode would need other files beside it.
func checkHeader(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	head := make([]byte, 100)
	if _, err := io.ReadFull(f, head); err != nil {
		return refused("the export is cut off")
	}
	info, err := f.Stat()
	if err != nil {
		return err
	}
	page := int64(binary.BigEndian.Uint16(head[16:]))
	if page == 1 { // SQLite's 65536
		page = 1 << 16
	}
	application, version := binary.BigEndian.Uint32(head[68:]), binary.BigEndian.Uint32(head[60:])
	switch {
	case int64(application) != ckpt.ApplicationID:
		return refused("this is a database of another program (application_id %d)", application)
	case int64(version) != ckpt.SchemaVersion:
		return refused("the export has schema version %d, and this program reads version %d: use the ckptsidecar that made it", version, ckpt.SchemaVersion)
	case info.Size() != page*int64(binary.BigEndian.Uint32(head[28:])):
		return refused("the export is cut off, or something follows it")
	case head[18] != 1 || head[19] != 1:
		return refused("this is a database in use, not an export: make one with ckptsidecar export")
	}
	return nil
}

// object is a table, an index, a view or a trigger.
type object struct {
	Type  string `db:"type"`
	Name  string `db:"name"`
	Table string `db:"tbl_name"`
	SQL   string `db:"sql"`
}

const selectObjects = `SELECT type, name, tbl_name, coalesce(sql, '') AS sql FROM sqlite_schema ORDER BY type, name`

// ours is the schema of this program as SQLite keeps it.
var ours = sync.OnceValues(func() (objects []object, err error) {
	folder, err := os.MkdirTemp("", "ckptsidecar-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(folder)
	return objects, sqlite.Fill(context.Background(), filepath.Join(folder, "schema.db"), func(to *sqlx.Conn) error {
		if _, err := to.ExecContext(context.Background(), ckpt.Schema); err != nil {
			return err
		}
		return to.SelectContext(context.Background(), &objects, selectObjects)
	})
})

func (in *incoming) check(ctx context.Context) error {
	want, err := ours()
	if err != nil {
		return err
	}
	var objects []object
	if err := in.q.SelectContext(ctx, &objects, selectObjects); err != nil {
		return err
	}
	if !slices.Equal(objects, want) {
		return refused("the export has another schema than this program: %s", firstDifference(objects, want))
	}
	if err := in.readManifest(ctx); err != nil {
		return err
	}
	if err := in.bounds(ctx); err != nil {
		return err
	}
	if err := in.values(ctx); err != nil {
		return err
	}
	if in.logged {
		if err := in.verify(ctx); err != nil {
			return err
		}
	}
	return in.readAgents(ctx)
}

func firstDifference(is, want []object) string {
	for _, o := range is {
		if !slices.Contains(want, o) {
			return o.Type + " " + cut(o.Name)
		}
	}
	return "something is missing"
}

func (in *incoming) readManifest(ctx context.Context) error {
	var text string
	err := in.q.GetContext(ctx, &text, `SELECT value FROM meta WHERE key = ? AND length(value) < 1 << 24`, keyExport)
	if ledger.IsNoRows(err) {
		return refused("this is a database of ckptsidecar, not an export: make one with ckptsidecar export")
	}
	if err == nil {
		err = json.Unmarshal([]byte(text), &in.said)
	}
	if err == nil && in.said.Version != exportVersion {
		return refused("the export has version %d, and this program reads version %d: use the ckptsidecar that made it", in.said.Version, exportVersion)
	}
	return err
}

// The bounds of a file: bytes of a state, and files in the lists of all its trees together.
const (
	maxState    = 256 << 20
	maxMaterial = 512 << 20 // of what one state or content is made of
	maxListed   = 50 << 20
)

// tooMuch are conditions under which reading a file takes memory or time without bound.
var tooMuch = []struct{ what, where string }{
	{"a state", fmt.Sprintf(`FROM checkpoints WHERE size NOT BETWEEN 0 AND %d OR length(pieces) > %d`, maxState, maxPieces)},
	{"a segment", fmt.Sprintf(`FROM segments WHERE size NOT BETWEEN 0 AND %d`, maxState)},
	{"a content", fmt.Sprintf(`FROM contents WHERE size NOT BETWEEN 0 AND %d OR fresh NOT BETWEEN 0 AND %[1]d OR length(pieces) > %d`, ckpt.MaxTreeFile, maxPieces)},
	{"a write", fmt.Sprintf(`FROM graph_writes WHERE size NOT BETWEEN 0 AND %d`, maxState)},
	{"what a state is made of", fmt.Sprintf(`WHERE (SELECT sum(size) FROM segments) > %d AND EXISTS (SELECT 1 FROM checkpoints c WHERE (SELECT sum(size)
		FROM segments WHERE id IN (SELECT value ->> 0 FROM json_each(c.pieces))) > %[1]d)`, maxMaterial)},
	{"what a content is made of", fmt.Sprintf(`WHERE (SELECT sum(fresh) FROM contents) > %d AND EXISTS (SELECT 1 FROM contents c WHERE (SELECT sum(fresh)
		FROM contents WHERE id IN (SELECT value ->> 0 FROM json_each(c.pieces))) > %[1]d)`, maxMaterial)},
	{"the lists of files", fmt.Sprintf(`WHERE (SELECT coalesce(sum(files), 0) FROM trees) > %d OR (SELECT coalesce(sum((SELECT count(*) FROM tree_files f
		WHERE f.tree_id = t.base)), 0) FROM trees t WHERE t.base IS NOT NULL) > %[1]d`, maxListed)},
}

// bounds refuses rows that an export never has, and numbers without measure.
func (in *incoming) bounds(ctx context.Context) error {
	is := func(query string) (is bool, err error) {
		return is, in.q.GetContext(ctx, &is, `SELECT EXISTS (SELECT 1 `+query+`)`)
	}
	for _, name := range slices.Sorted(maps.Keys(notOfAgents)) {
		if has, err := is(`FROM ` + name); err != nil || has {
			return orRefused(err, "the export has rows of "+name)
		}
	}
	for _, b := range tooMuch {
		if has, err := is(b.where); err != nil || has {
			return orRefused(err, b.what+" of the export is too large")
		}
	}
	for _, t := range tables {
		if t.hangs() && t != graphCheckpoints && t != runs {
			if has, err := is(`FROM ` + t.name + ` WHERE run_id NOT IN (SELECT id FROM runs)`); err != nil || has {
				return orRefused(err, "the export has a row of "+t.name+" without a run")
			}
		}
	}
	return nil
}

func orRefused(err error, what string) error {
	if err != nil {
		return err
	}
	return refused("%s", what)
}

// values reads every row, refuses values that no request could have stored, and compares the hash of all rows.
func (in *incoming) values(ctx context.Context) error {
	var said, want string
	err := in.q.QueryRowxContext(ctx, `SELECT (SELECT value FROM meta WHERE key = ?), (SELECT value FROM meta WHERE key = ?)`,
		keyExport, keyRows).Scan(&said, &want)
	if err != nil {
		return err
	}
	sum, err := digest(ctx, in.q, said, func(t *table, values []any) error {
		err := t.valid(values)
		if err == nil {
			err = sumOfWrite(t, values)
		}
		for i := range t.columns {
			if t.columns[i].no == leftOut && values[i] != nil {
				err = fmt.Errorf("it has a value in %s, which no export has", t.columns[i].name)
			}
		}
		if err != nil {
			return refused("a row of %s in the export is wrong: %v", t.name, plain(err))
		}
		return nil
	})
	if err == nil && sum != want {
		err = refused("the export was changed: the hash of its rows does not match")
	}
	return err
}

// late are rules that a database follows a moment later, or that an import sees to.
var late = []string{"routine_excess", "recovery_expired", "pre_operation_expired", "operation_succeeded", "suspect", "not_suspect",
	"segment_unused"}

// verify checks the file as `ckptsidecar verify` does: every hash, and the chain of its log.
func (in *incoming) verify(ctx context.Context) error {
	report, err := audit.VerifyRows(ctx, in.path)
	if err != nil {
		return err
	}
	for _, p := range report.Problems {
		if !slices.Contains(late, p.Rule) {
			return refused("the export is damaged or was changed: %s", cut(p.String()))
		}
	}
	return nil
}

// readAgents reads the agents and their runs, without what belongs to the runs.
func (in *incoming) readAgents(ctx context.Context) error {
	rows, err := in.q.QueryxContext(ctx, `SELECT `+agents.list("", all)+` FROM agents ORDER BY id`)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		values, err := rows.SliceScan()
		if err != nil {
			return err
		}
		t := agents
		a := &agentSeen{id: t.whole(values, "id"), name: t.text(values, "name"), target: t.text(values, "name"), owner: t.text(values, "owner"),
			policy: []byte(t.text(values, "policy"))}
		if a.createdAt, err = ckpt.ParseTime(t.text(values, "created_at")); err == nil {
			a.policyAt, err = ckpt.ParseTime(t.text(values, "policy_at"))
		}
		if err != nil {
			return err
		}
		if slices.ContainsFunc(in.agents, func(b *agentSeen) bool { return b.name == a.name }) {
			return refused("agent %s comes twice in the export", a.name)
		}
		in.agents = append(in.agents, a)
	}
	if err := rows.Err(); err != nil {
		return err
	}
	if len(in.agents) == 0 {
		return refused("the export has no agent")
	}
	for _, a := range in.agents {
		if err := in.readRuns(ctx, a); err != nil {
			return err
		}
	}
	var lost bool
	err = in.q.GetContext(ctx, &lost, `SELECT EXISTS (SELECT 1 FROM runs WHERE agent_id NOT IN (SELECT id FROM agents))`)
	if err == nil && lost {
		err = refused("the export has a run without an agent")
	}
	return err
}

const selectRuns = `SELECT id, agent_id, name, base, life, status, started_at, ended_at IS NOT NULL AS ended, epoch, attempt, last_seq, last_event,
	max(stretch_seq, stretch_from) AS counts, coalesce((SELECT max(seq) FROM checkpoints c WHERE c.run_id = r.id), 0) AS newest,
	coalesce((SELECT min(seq) FROM events e WHERE e.run_id = r.id), 0) AS first_event, (SELECT count(*) FROM events e WHERE e.run_id = r.id) AS events,
	coalesce((SELECT max(seq) FROM events e WHERE e.run_id = r.id), 0) AS new_event FROM runs r WHERE agent_id = ? ORDER BY id`

func (in *incoming) readRuns(ctx context.Context, a *agentSeen) error {
	if err := in.q.SelectContext(ctx, &a.runs, selectRuns, a.id); err != nil {
		return err
	}
	for _, r := range a.runs {
		r.alive, r.unscreened, r.damaged = slices.Contains(in.said.Alive, r.ID), slices.Contains(in.said.Unscreened, r.ID), cut(in.said.Damaged[r.ID])
		switch {
		case r.Ended == r.Status.Resumable():
			return refused("run %s is %s, which contradicts its ended_at", r.Name, r.Status)
		case r.LastSeq > ledger.MaxSeq:
			return refused("run %s has a last_seq above %d", r.Name, int64(ledger.MaxSeq))
		case r.Counts > r.LastSeq || r.Newest > r.LastSeq:
			return refused("run %s counts checkpoints beyond its last_seq", r.Name)
		case r.Events > 0 && (r.NewEvent != r.LastEvent || r.Events != r.NewEvent-r.FirstEvent+1):
			return refused("the events of run %s have a gap", r.Name)
		}
		var threads []ckpt.GraphThread
		if err := in.q.SelectContext(ctx, &threads, `SELECT thread, ns FROM graph_threads WHERE run_id = ?`, r.ID); err != nil {
			return err
		}
		if len(threads) > 0 && threads[0].RunName() != r.Base {
			return refused("the thread %q does not belong to run %s", cut(threads[0].Thread), r.Name)
		}
		if err := in.checkCheckpoints(ctx, r); err != nil {
			return err
		}
	}
	return a.nameLives()
}

// checkCheckpoints checks each checkpoint of a run as if it were saved now, and its state against its hash.
func (in *incoming) checkCheckpoints(ctx context.Context, r *runSeen) error {
	rows, err := in.q.QueryxContext(ctx, checkpoints.query(), 0, r.ID)
	if err != nil {
		return err
	}
	defer rows.Close()
	seqs := map[int64]bool{}
	for rows.Next() {
		values, err := rows.SliceScan()
		if err != nil {
			return err
		}
		t := checkpoints
		row, request, err := readCheckpoint(values)
		if err != nil {
			return refused("checkpoint %s of the export is wrong: %v", t.text(values, "id"), plain(err))
		}
		request.State, err = blob.Decode(ctx, in.q, stateRow(values))
		switch {
		case err != nil && ckpt.CodeOf(err) != ckpt.CodeCorrupt:
			return err
		case err == nil:
			request.Agent, request.Run = "x", r.Base
			err = wellformed.Save(request)
		}
		switch {
		case err != nil:
		case int64(len(request.State)) != t.whole(values, "size"):
			err = errors.New("the state does not match its size")
		case seqs[row.Seq]:
			err = errors.New("its number comes twice")
		case row.Seq > r.LastSeq:
			err = errors.New("its number is beyond its run's last_seq")
		case t.at(values, "state_of") != nil && t.whole(values, "state_of") >= row.Seq:
			err = errors.New("its state_of is not an earlier checkpoint")
		case t.whole(values, "slot")>>32 != r.ID:
			err = errors.New("it stands in the row of another run")
		}
		if err != nil {
			return refused("checkpoint %s of the export is wrong: %v", row.ID, plain(err))
		}
		seqs[row.Seq] = true
	}
	return rows.Err()
}

// readCheckpoint reads the row of a checkpoint, and the save that corresponds to it, without its state.
func readCheckpoint(values []any) (*ledger.CheckpointRow, *ckpt.SaveRequest, error) {
	t := checkpoints
	row := &ledger.CheckpointRow{ID: t.text(values, "id"), Seq: t.whole(values, "seq"), Kind: ckpt.Kind(t.text(values, "kind")),
		Parent: t.ref(values, "parent"), ContentType: t.text(values, "content_type"), Metadata: ledger.MetadataText(json.RawMessage(t.text(values, "metadata"))),
		Step: t.ref(values, "step"), Operation: t.ref(values, "operation"), Pinned: t.whole(values, "pinned") == 1, Suspect: t.whole(values, "suspect") == 1}
	var err error
	if row.CreatedAt, err = ckpt.ParseTime(t.text(values, "created_at")); err != nil {
		return nil, nil, err
	}
	if labels := t.text(values, "labels"); labels != "" && labels != "{}" {
		if err := json.Unmarshal([]byte(labels), (*map[string]string)(&row.Labels)); err != nil {
			return nil, nil, err
		}
	}
	r := &ckpt.SaveRequest{ID: row.ID, Kind: row.Kind, Parent: row.Parent, Step: row.Step, Labels: row.Labels, Metadata: json.RawMessage(row.Metadata),
		ContentType: row.ContentType}
	if program := t.text(values, "program"); program != "" {
		row.Program, r.Program = program, &ckpt.Program{}
		err = json.Unmarshal([]byte(program), r.Program)
	}
	if err == nil && row.Operation != "" {
		err = ckpt.CheckKey("operation", string(row.Operation))
	}
	return row, r, err
}

// nameLives says what each life of the file is called here: the last one main, the one before main~1.
func (a *agentSeen) nameLives() error {
	for _, r := range a.runs {
		ago := 0
		for _, o := range a.runs {
			switch {
			case o.Base != r.Base || o == r:
			case o.Life == r.Life:
				return refused("life %d of run %s comes twice", r.Life, r.Base)
			case o.Life > r.Life:
				ago++
			}
		}
		r.called = ckpt.LifeName(r.Base, ago)
	}
	return nil
}

// cut shortens a text for use in a message, which has no control characters.
func cut(s string) string {
	const most = 200
	if len(s) > most {
		s = s[:most] + "…"
	}
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(s, ""))
}
