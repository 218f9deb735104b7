package archive

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"

	"github.com/google/uuid"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db/blob"
	"github.com/ckptsidecar/ckptsidecar/internal/db/driftlog"
	"github.com/ckptsidecar/ckptsidecar/internal/db/ledger"
	"github.com/ckptsidecar/ckptsidecar/internal/db/sqlite"
	"github.com/ckptsidecar/ckptsidecar/internal/jsontext"
	"github.com/ckptsidecar/ckptsidecar/internal/wellformed"
)

// The bounds of one transaction of an import.
const (
	importAtOnce      = 64
	importBytesAtOnce = 32 << 20
)

// Import reads an export and saves what is not there yet. It first takes the
// whole text aside and checks it, so that a torn or changed one changes
// nothing; doing it again changes nothing either.
func (s *Archive) Import(ctx context.Context, sc ckpt.Scope, r ckpt.ImportRequest, body io.Reader) (*ckpt.ImportReport, error) {
	if r.Agent != "" {
		if err := ckpt.CheckAgentName(r.Agent); err != nil {
			return nil, err
		}
	}
	aside, err := s.takeAside(body)
	if err != nil {
		return nil, err
	}
	defer func() { _ = aside.Close(); _ = os.Remove(aside.Name()) }()
	begin, err := checkExport(aside)
	if err != nil {
		return nil, err
	}
	im := &importing{store: s, scope: sc, begin: begin, agent: begin.Agent, renamed: map[string]string{}}
	if r.Agent != "" {
		im.agent = r.Agent
	}
	im.report = &ckpt.ImportReport{Agent: im.agent, Pruned: []string{}}
	if err := im.all(ctx, aside); err != nil {
		return nil, err
	}
	if len(im.renamed) > 0 {
		im.report.Renamed = im.renamed
	}
	return im.report, nil
}

// takeAside copies the body into a file of its own beside the database.
func (s *Archive) takeAside(body io.Reader) (*os.File, error) {
	f, err := os.CreateTemp(filepath.Dir(s.Opt.Path), ".import-")
	if err != nil {
		return nil, ckpt.Wrap(ckpt.CodeStorageFull, err, "the import cannot be taken aside for checking")
	}
	if _, err := io.Copy(f, body); err != nil {
		_ = f.Close()
		_ = os.Remove(f.Name())
		var e *ckpt.Error
		if errors.As(err, &e) {
			return nil, e
		}
		return nil, ckpt.Wrap(ckpt.CodeInvalid, err, "the import did not arrive whole: nothing was changed, send it again")
	}
	return f, nil
}

// lines reads the lines of an export with their numbers.
type lines struct {
	in     *bufio.Reader
	number int64
}

func readLines(f *os.File) (*lines, error) {
	_, err := f.Seek(0, io.SeekStart)
	return &lines{in: bufio.NewReaderSize(f, 256<<10)}, err
}

// next answers a line with its line break, io.EOF after the last.
func (l *lines) next() ([]byte, *exportLine, error) {
	b, err := l.in.ReadBytes('\n')
	if err == io.EOF && len(b) > 0 {
		return nil, nil, ckpt.Errorf(ckpt.CodeInvalid, "line %d of the export is cut off: nothing was changed", l.number+1)
	}
	if err != nil {
		return nil, nil, err
	}
	l.number++
	var line exportLine
	if err := jsontext.Decode(bytes.TrimRight(b, "\n"), &line); err != nil {
		return nil, nil, ckpt.Errorf(ckpt.CodeInvalid, "line %d of the export is wrong: %v; nothing was changed", l.number, err)
	}
	return b, &line, nil
}

// checkExport reads a whole export without using it, and answers its first line.
func checkExport(f *os.File) (*exportLine, error) {
	l, err := readLines(f)
	if err != nil {
		return nil, err
	}
	sum := sha256.New()
	var begin *exportLine
	for {
		b, line, err := l.next()
		switch {
		case err == io.EOF:
			return nil, ckpt.Errorf(ckpt.CodeInvalid, "the export ends after line %d without its last line: it was cut off; nothing was changed", l.number)
		case err != nil:
			return nil, err
		case begin == nil:
			if begin, err = checkBegin(line); err != nil {
				return nil, err
			}
		case line.Type == lineDamaged: // what the exporter could not read is not there to be imported
		case line.Type == lineEnd:
			return begin, checkEnd(l, line, hex.EncodeToString(sum.Sum(nil)))
		default:
			if err := checkCheckpointLine(l.number, line); err != nil {
				return nil, err
			}
		}
		sum.Write(b)
	}
}

func checkBegin(line *exportLine) (*exportLine, error) {
	if line.Type != lineBegin {
		return nil, ckpt.Errorf(ckpt.CodeInvalid, "this is not an export of ckptsidecar: its first line has no type %q", lineBegin)
	}
	if line.Version != exportVersion {
		return nil, ckpt.Errorf(ckpt.CodeInvalid, "the export has version %d, this program reads %d", line.Version, exportVersion)
	}
	if _, err := wellformed.ParsePolicy(line.Policy); err != nil {
		return nil, err
	}
	return line, ckpt.CheckAgentName(line.Agent)
}

func checkEnd(l *lines, line *exportLine, sum string) error {
	if line.Lines != l.number-1 || line.SHA256 != sum {
		return ckpt.Errorf(ckpt.CodeInvalid, "the export was changed: its checksum does not match; nothing was imported")
	}
	if _, _, err := l.next(); err != io.EOF {
		return ckpt.Errorf(ckpt.CodeInvalid, "line %d comes after the end of the export; nothing was imported", l.number+1)
	}
	return nil
}

// checkCheckpointLine checks one checkpoint as a save would be checked, and
// that its state is the one that was exported.
func checkCheckpointLine(number int64, line *exportLine) error {
	r, c, err := line.request("x")
	if err == nil {
		err = wellformed.Save(r)
	}
	if err == nil {
		err = ckpt.CheckID(c.ID) // a save may do without
	}
	if err == nil && c.Operation != "" {
		err = ckpt.CheckKey("operation", string(c.Operation))
	}
	if err == nil && c.CreatedAt.IsZero() {
		err = errors.New("created_at is missing")
	}
	if err == nil && blob.HashOf(r.State) != c.SHA256 {
		err = errors.New("the state does not match its sha256")
	}
	if err != nil {
		return ckpt.Errorf(ckpt.CodeInvalid, "line %d of the export is wrong: %v; nothing was imported", number, err)
	}
	return nil
}

// request is the save that a line stands for.
func (line *exportLine) request(agent string) (*ckpt.SaveRequest, *ckpt.Checkpoint, error) {
	c := line.Checkpoint
	if line.Type != lineCheckpoint || c == nil {
		return nil, nil, errors.New("it is not a checkpoint")
	}
	state := []byte(line.State)
	if line.Base64 != nil {
		var err error
		if state, err = base64.StdEncoding.DecodeString(*line.Base64); err != nil {
			return nil, nil, errors.New("state_base64 is not base64")
		}
	}
	return &ckpt.SaveRequest{ID: c.ID, Agent: agent, Run: c.Run, Kind: c.Kind, Parent: c.Parent, Step: c.Step, Labels: c.Labels, Metadata: c.Metadata,
		Program: c.Program, ContentType: c.ContentType, State: state}, c, nil
}

// importing is an import on its way.
type importing struct {
	store   *Archive
	scope   ckpt.Scope
	begin   *exportLine
	agent   string
	renamed map[string]string // ids that were taken by another agent, and the new ones
	report  *ckpt.ImportReport
}

// imported is one checkpoint on its way in.
type imported struct {
	request *ckpt.SaveRequest
	from    *ckpt.Checkpoint
	state   blob.Encoded
}

func (im *importing) all(ctx context.Context, f *os.File) error {
	l, err := readLines(f)
	if err != nil {
		return err
	}
	var batch []imported
	var size int64
	for {
		_, line, err := l.next()
		if err != nil {
			return err
		}
		if line.Type == lineCheckpoint {
			r, c, err := line.request(im.agent)
			if err != nil {
				return err
			}
			batch = append(batch, imported{r, c, blob.Encode(r.State)})
			size += int64(len(r.State))
		}
		if len(batch) >= importAtOnce || size >= importBytesAtOnce || line.Type == lineEnd {
			if err := im.save(ctx, batch, size); err != nil {
				return err
			}
			batch, size = nil, 0
		}
		if line.Type == lineEnd {
			return nil
		}
	}
}

// save brings some checkpoints in, in one transaction that leaves no run with
// more than its policy allows.
func (im *importing) save(ctx context.Context, batch []imported, size int64) error {
	if err := ctx.Err(); err != nil {
		return sqlite.ReadError(err)
	}
	before := *im.report
	return im.store.Submit(&ledger.Op{Owner: im.scope.Caller.Owner, Size: size, Entry: ledger.Entry(im.scope, "import", im.agent), Do: func(tx *ledger.Tx) error {
		*im.report = before
		agent, err := im.target(tx)
		if err != nil {
			return err
		}
		heads := map[int64]ckpt.Ref{}
		for i := range batch {
			if err := im.one(tx, agent, &batch[i], heads); err != nil {
				return err
			}
		}
		return im.settle(tx, agent, heads)
	}})
}

// target finds the agent or makes it with the policy that the export carries.
func (im *importing) target(tx *ledger.Tx) (*ledger.AgentRow, error) {
	agent, err := im.store.Agent(tx, im.scope.Whose(), im.agent)
	if err != nil || agent != nil {
		return agent, err
	}
	policy, err := wellformed.ParsePolicy(im.begin.Policy)
	if err == nil && im.store.Opt.Drift != nil {
		err = im.store.Opt.Drift.Check(&policy)
	}
	if err != nil {
		return nil, err
	}
	if err := im.store.StorePolicy(tx, im.scope, im.agent, policy, ledger.Entry(im.scope, "set_policy", im.agent)); err != nil {
		return nil, err
	}
	return im.store.Agent(tx, im.scope.Whose(), im.agent)
}

func (im *importing) one(tx *ledger.Tx, agent *ledger.AgentRow, c *imported, heads map[int64]ckpt.Ref) error {
	id, present, err := im.idFor(tx, agent, c)
	if err != nil || present {
		return err
	}
	run, err := tx.MakeRun(agent.ID, ledger.RunName(c.request.Run))
	if err != nil {
		return err
	}
	if _, seen := heads[run.ID]; !seen {
		heads[run.ID] = run.Head
	}
	row := ledger.CheckpointRow{N: tx.Head.N + 1, ID: id, Seq: run.LastSeq + 1, Kind: c.request.Kind, Parent: im.parent(c.from.Parent),
		CreatedAt: c.from.CreatedAt, ContentType: c.request.ContentType, Labels: c.request.Labels, Metadata: ledger.MetadataText(c.request.Metadata),
		Step: c.request.Step, Operation: c.from.Operation, Pinned: c.from.Pinned, Suspect: c.from.Suspect}
	if c.request.Program != nil {
		text, err := json.Marshal(c.request.Program)
		if err != nil {
			return err
		}
		row.Program = string(text)
	}
	if err := driftlog.SuspectIfDrifting(tx, run, &row); err != nil {
		return err
	}
	if err := tx.Insert(run, &row, &c.state); err != nil {
		return err
	}
	if row.ContentType == ckpt.ContentTypeGraph {
		if err := im.store.graphImported(tx, agent, run, row.N, c.request.State); err != nil {
			return err
		}
	}
	im.store.ForgetPast(run.ID) // its past is another one now
	im.report.Imported++
	e := ledger.Entry(im.scope, "import", agent.Name)
	e.Run, e.Subject = run.Name, id
	e.Detail = map[string]any{"kind": row.Kind, "seq": row.Seq, "sha256": c.state.Sha256, "size": c.state.Size, "from_owner": im.begin.Owner, "from_seq": c.from.Seq}
	if err := row.NoteRest(e.Detail); err != nil {
		return err
	}
	return tx.Audit(e)
}

func (im *importing) parent(id ckpt.Ref) ckpt.Ref {
	if to, ok := im.renamed[string(id)]; ok {
		return ckpt.Ref(to)
	}
	return id
}

// idFor answers under which id a checkpoint comes in, and whether it is there
// already. An id that another agent has is exchanged.
func (im *importing) idFor(tx *ledger.Tx, agent *ledger.AgentRow, c *imported) (id string, present bool, err error) {
	id = string(im.parent(ckpt.Ref(c.from.ID)))
	var there struct {
		AgentID int64  `db:"agent_id"`
		SHA256  string `db:"sha256"`
	}
	found, err := tx.Get(&there, `SELECT r.agent_id, c.sha256 FROM checkpoints c JOIN runs r ON r.id = c.run_id WHERE c.id = ?`, id)
	switch {
	case err != nil:
		return "", false, err
	case !found:
		return id, false, nil
	case there.AgentID == agent.ID && there.SHA256 == c.state.Sha256:
		im.report.Present++
		return id, true, nil
	case there.AgentID == agent.ID:
		return "", false, ckpt.Errorf(ckpt.CodeConflict, "checkpoint %s is there with another state: import into another agent with --agent", id)
	}
	im.renamed[c.from.ID] = otherID(c.from.ID, agent)
	return im.idFor(tx, agent, c)
}

// otherID makes the id under which an agent has what another has under id: the
// same time, the rest from a hash, so that the next import finds it again.
func otherID(id string, agent *ledger.AgentRow) string {
	var u uuid.UUID
	sum := sha256.Sum256([]byte(id + " " + agent.Owner + " " + agent.Name))
	copy(u[:], sum[:])
	if from, err := uuid.Parse(id); err == nil {
		copy(u[:6], from[:6])
	}
	u[6] = u[6]&0x0f | 0x70
	u[8] = u[8]&0x3f | 0x80
	return u.String()
}

// settle leaves each run with the head that it had, if it had one, and with no
// more than its policy allows.
func (im *importing) settle(tx *ledger.Tx, agent *ledger.AgentRow, heads map[int64]ckpt.Ref) error {
	for id, head := range heads {
		run, err := tx.RunByID(id)
		if err != nil {
			return err
		}
		if head != "" {
			run.Head = head
			if err := tx.Exec(`UPDATE runs SET head = ? WHERE id = ?`, head, id); err != nil {
				return err
			}
		}
		gone, err := im.store.RetainRun(tx, agent, run, ledger.Entry(im.scope, "import", agent.Name))
		if err != nil {
			return err
		}
		im.report.Pruned = append(im.report.Pruned, gone...)
	}
	return nil
}
