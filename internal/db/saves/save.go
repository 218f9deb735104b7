package saves

import (
	"context"
	"encoding/json"
	"strconv"

	"github.com/google/uuid"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db/blob"
	"github.com/ckptsidecar/ckptsidecar/internal/db/driftlog"
	"github.com/ckptsidecar/ckptsidecar/internal/db/ledger"
	"github.com/ckptsidecar/ckptsidecar/internal/secrets"
	"github.com/ckptsidecar/ckptsidecar/internal/wellformed"
)

// Save puts a state on disk. It answers once the transaction that holds it has
// been flushed, and everything that the save implies with it: the pruning of
// its run, the idempotency key, the audit rows.
func (s *Saves) Save(ctx context.Context, sc ckpt.Scope, r *ckpt.SaveRequest) (*ckpt.Saved, error) {
	if err := wellformed.SaveRest(r); err != nil {
		return nil, err
	}
	v, err := s.NewSave(ctx, sc, r)
	if err != nil {
		return nil, err
	}
	defer v.Leave()
	err = s.Submit(&ledger.Op{Owner: sc.Caller.Owner, Size: int64(len(r.State)), Entry: v.Entry, Do: func(tx *ledger.Tx) error {
		return s.Put(tx, v)
	}})
	if err != nil {
		return nil, err
	}
	return v.Saved, nil
}

// Save is one save on its way: what was asked, made ready outside the writer.
type Save struct {
	driftlog.WatchedSave
	Scope     ckpt.Scope
	State     blob.Encoded
	key       string // the idempotency key: the client's, or its id
	print     string
	program   any
	Operation ckpt.Ref         // the key of the operation that it is taken for
	secrets   []secrets.Secret // what in the state looks like one
	id        string           // made here, where the client made none
	n         int64            // the row of the audit log that records it
	Entry     ledger.AuditEntry
	Leave     func() // lets the next save of the run begin; to be called when this one is done

	Saved *ckpt.Saved
}

// NewSave does all of a save that needs no transaction. It waits until no other
// of the run is on its way, so that each stands on the one before.
func (s *Saves) NewSave(ctx context.Context, sc ckpt.Scope, r *ckpt.SaveRequest) (_ *Save, err error) {
	r, beside, err := s.screenSave(sc, r)
	if err != nil {
		return nil, err
	}
	v := &Save{WatchedSave: driftlog.WatchedSave{Request: r}, Scope: sc, key: r.IdempotencyKey, Entry: ledger.Entry(sc, "save", r.Agent)}
	v.Entry.Run, v.Entry.Subject = ledger.RunName(r.Run), r.ID
	if len(r.Trees) > 0 {
		v.Entry.Detail = map[string]any{"trees": r.Trees}
	}
	if r.ID != "" {
		v.key = r.ID
	}
	if err := v.EncodeProgram(); err != nil {
		return nil, err
	}
	key := blob.RunKey{Owner: sc.Whose(), Agent: r.Agent, Run: ledger.RunName(r.Run)}
	if v.Leave, err = s.States.Enter(key, len(r.State), s.Opt.WriteTimeout); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			v.Leave()
		}
	}()
	if v.State, v.secrets, err = s.Preparer.Prepare(key, sc, r); err != nil {
		return v, err
	}
	v.secrets = append(v.secrets, beside...)
	if v.Drift, err = s.PrintState(ctx, key, r, &v.State); err != nil || v.key == "" {
		return v, err
	}
	text, err := v.appendPrint(make([]byte, 0, 256))
	v.print = ledger.FingerprintOf(text)
	return v, err
}

// appendPrint writes what tells the save from another under the same key, as
// json.Marshal writes a list of it. A print is kept for as long as its key, so this
// form stays.
func (v *Save) appendPrint(b []byte) ([]byte, error) {
	r := v.Request
	labels, err := r.Labels.MarshalJSON()
	b = ledger.AppendString(append(b, `["save",`...), ledger.RunName(r.Run))
	b = ledger.AppendString(append(b, ','), string(r.Kind))
	b = ledger.AppendRef(append(b, ','), r.Parent)
	b = ledger.AppendRef(append(b, ','), r.Step)
	b = append(append(b, ','), labels...)
	b = ledger.AppendString(append(b, ','), string(r.Metadata))
	if program, ok := v.program.(string); ok {
		b = ledger.AppendString(append(b, ','), program)
	} else {
		b = append(b, ",null"...)
	}
	b = ledger.AppendString(append(b, ','), r.ContentType)
	b = ledger.AppendString(append(b, ','), v.State.Sent)
	if r.ForkFrom != "" {
		b = ledger.AppendRef(append(b, ','), r.ForkFrom)
	}
	return append(b, ']'), err
}

// screenSave answers the request as it is to be stored, but for the state, and
// what was found beside that.
func (s *Saves) screenSave(sc ckpt.Scope, r *ckpt.SaveRequest) (*ckpt.SaveRequest, []secrets.Secret, error) {
	if len(r.Labels) == 0 && len(r.Metadata) == 0 && r.Program == nil {
		return r, nil, nil
	}
	clean := *r
	c := s.Screen(sc, r.Agent, "checkpoint")
	c.Labels(&clean.Labels)
	clean.Metadata = c.Value("metadata", r.Metadata, true)
	if r.Program != nil {
		before := len(c.Found)
		c.Value("program", []byte(r.Program.Source), false)
		if len(c.Found) > before && c.Mode == ckpt.SecretsRedact {
			c.Refuse(" a program cannot be redacted, because its offset counts bytes;")
		}
	}
	return &clean, c.Found, c.Err
}

// EncodeProgram makes the program ready for its column.
func (v *Save) EncodeProgram() error {
	if v.Request.Program == nil {
		return nil
	}
	text, err := json.Marshal(v.Request.Program)
	v.program = string(text)
	return err
}

// save is one save inside the writer's transaction. It refuses before it
// changes anything, except that it may have made the agent and the run.
func (s *Saves) Put(tx *ledger.Tx, v *Save) (err error) {
	v.Saved = nil
	defer func() {
		if err != nil || v.Saved == nil || v.Saved.Replayed {
			s.Unsee(tx, &v.WatchedSave)
		}
	}()
	agent, err := s.Agent(tx, v.Scope.Whose(), v.Request.Agent)
	if err != nil {
		return err
	}
	if agent != nil {
		if done, err := s.saveHot(tx, v, agent); done || err != nil {
			return err
		}
		if replayed, err := s.replaySave(tx, v, agent); err != nil {
			return err
		} else if replayed {
			v.Saved.Drift, err = s.VerdictFor(tx, agent, ledger.RunName(v.Request.Run))
			return err
		}
	}
	if err := s.Admit(tx, v); err != nil {
		return err
	}
	if len(v.Request.Trees) > 0 {
		err := s.Trees.MayName(tx, agent, v.Request.Trees)
		if ckpt.CodeOf(err) == ckpt.CodeFilesMissing && !v.Scope.Spooled.IsZero() {
			bare := *v.Request // it comes too late for its files
			bare.Trees = nil
			v.Request, err = &bare, nil
		}
		if err != nil {
			return err
		}
	}
	agent, run, err := s.runToSave(tx, v, agent)
	if err != nil {
		return err
	}
	if err := s.Revive(tx, run, v.Scope); err != nil {
		return err
	}
	reply, err := s.InsertCheckpoint(tx, v, agent, run)
	if err != nil {
		return err
	}
	v.Saved = v.answer(agent, reply)
	if v.Saved.Drift, err = s.VerdictFor(tx, agent, run.Name); err != nil {
		return err
	}
	if v.Request.ID != "" {
		return tx.RememberID(agent.ID, v.key, v.print, v.n)
	}
	return tx.RememberText(agent.ID, v.key, v.print, AppendReply(nil, &reply))
}

func (s *Saves) replaySave(tx *ledger.Tx, v *Save, agent *ledger.AgentRow) (bool, error) {
	reply, found, err := tx.ReplayedSave(agent.ID, v.Request.ID, v.print)
	if !found && err == nil {
		found, err = tx.Replayed(agent.ID, v.key, v.print, &reply)
	}
	if found && err == nil {
		v.Saved = v.answer(agent, reply)
		v.Saved.Replayed = true
		if len(v.Request.Trees) > 0 { // the first request may have named none
			v.Saved.Trees = nil
			if c, err := tx.Reread(agent.Owner, reply.ID); err == nil {
				v.Saved.Trees = c.Trees
			}
		}
	}
	return found, err
}

// runToSave finds the agent and its run, or makes them, and checks the fence
// and the parent first.
func (s *Saves) runToSave(tx *ledger.Tx, v *Save, agent *ledger.AgentRow) (*ledger.AgentRow, *ledger.RunRow, error) {
	var run *ledger.RunRow
	var err error
	if agent != nil {
		if run, err = tx.Run(agent.ID, ledger.RunName(v.Request.Run)); err != nil {
			return nil, nil, err
		}
	}
	if err := s.mayFollow(tx, v, agent, run); err != nil {
		return nil, nil, err
	}
	if agent == nil {
		if agent, err = s.MakeAgent(tx, v.Scope.Whose(), v.Request.Agent); err != nil {
			return nil, nil, err
		}
	}
	if run != nil {
		return agent, run, nil
	}
	if run, err = tx.MakeRun(agent.ID, ledger.RunName(v.Request.Run)); err != nil || v.Request.ForkFrom == "" {
		return agent, run, err
	}
	return agent, run, v.fork(tx, agent, run)
}

// checkFork refuses a fork into a run that is there, so that two at once into one new
// name do not mix, and one of what is not the owner's.
func (v *Save) checkFork(tx *ledger.Tx, run *ledger.RunRow) error {
	if run != nil {
		return ckpt.Errorf(ckpt.CodeConflict, "agent %s already has a run %s: fork into another run", v.Request.Agent, run.Name)
	}
	var there bool
	_, err := tx.Get(&there, `SELECT EXISTS (SELECT 1 FROM checkpoints c JOIN runs r ON r.id = c.run_id
		JOIN agents a ON a.id = r.agent_id WHERE c.id = ? AND a.owner = ?)`,
		v.Request.ForkFrom, v.Scope.Whose())
	if err == nil && !there {
		err = ckpt.Errorf(ckpt.CodeNotFound, "there is no checkpoint %s to fork from", v.Request.ForkFrom)
	}
	return err
}

// fork notes what a new run began with. In the same agent that is the parent of its
// first checkpoint.
func (v *Save) fork(tx *ledger.Tx, agent *ledger.AgentRow, run *ledger.RunRow) error {
	from := v.Request.ForkFrom
	if v.Request.Parent == "" {
		switch err := CheckParent(tx, agent, string(from)); {
		case err == nil:
			run.Head = from
		case ckpt.CodeOf(err) != ckpt.CodeNotFound:
			return err
		}
	}
	run.ForkedFrom = from
	return tx.Exec(`UPDATE runs SET forked_from = ?, head = ? WHERE id = ?`, from, run.Head, run.ID)
}

// mayFollow refuses a writer that was fenced off, a parent that is not there,
// and an id that is taken.
func (s *Saves) mayFollow(tx *ledger.Tx, v *Save, agent *ledger.AgentRow, run *ledger.RunRow) error {
	if run != nil {
		if err := s.MayWrite(run, v.Scope, v.Request.Epoch); err != nil {
			return err
		}
	}
	if v.Request.ForkFrom != "" {
		if err := v.checkFork(tx, run); err != nil {
			return err
		}
	}
	if v.Request.Parent != "" {
		if err := CheckParent(tx, agent, string(v.Request.Parent)); err != nil {
			return err
		}
	}
	if v.Request.ID == "" {
		return nil
	}
	taken, err := tx.IDTaken(v.Scope.Whose(), v.Request.ID)
	if err != nil {
		return err
	}
	if taken { // by another agent of the owner, or by this one so long ago that the key is forgotten
		return ckpt.Errorf(ckpt.CodeIdempotencyMismatch, "the id %s is already used: create a new UUID of version 7 for each save", v.Request.ID)
	}
	return nil
}

func CheckParent(tx *ledger.Tx, agent *ledger.AgentRow, parent string) error {
	if agent != nil {
		var mine bool
		_, err := tx.Get(&mine, `SELECT EXISTS (SELECT 1 FROM checkpoints c JOIN runs r ON r.id = c.run_id
			WHERE c.id = ? AND r.agent_id = ?)`, parent, agent.ID)
		if err != nil || mine {
			return err
		}
	}
	return ckpt.Errorf(ckpt.CodeNotFound, "the parent %s is not a checkpoint of this agent", parent)
}

// InsertCheckpoint writes the row, the state, the audit row, and what follows
// for the run.
func (s *Saves) InsertCheckpoint(tx *ledger.Tx, v *Save, agent *ledger.AgentRow, run *ledger.RunRow) (ledger.SavedReply, error) {
	reply, err := v.begin(tx, run)
	if err != nil {
		return reply, err
	}
	w, err := s.WatchRun(tx, agent, run, v.PastOf())
	if err != nil {
		return reply, err
	}
	s.SeeSave(tx, &v.WatchedSave, v.State.Size, agent, run, w, reply)
	if err := s.insertSaved(tx, v, agent, run, w, reply, 0, nil); err != nil {
		return reply, err
	}
	if err := tx.NoteSaved(run); err != nil {
		return reply, err
	}
	if r := v.Request; len(r.Trees) > 0 || r.ForkFrom != "" {
		row := &ledger.CheckpointRow{N: v.n, ID: reply.ID, Seq: reply.Seq}
		if err := s.Trees.Name(tx, agent, run, row, r.Trees, r.ForkFrom); err != nil {
			return reply, err
		}
	}
	all, err := s.FoundInSave(tx, &v.WatchedSave, agent, run, w, reply)
	if err != nil {
		return reply, err
	}
	reply.Suspect = w.Covers(reply.Seq)
	tx.AmendSave(v.n, reply.Suspect)
	reply.Pruned, err = s.RetainSaved(tx, agent, run, reply.Seq, v.Request.Kind, all, v.Entry.Into(v.n))
	return reply, err
}

// begin decides what a save's answer will be, but for what is pruned.
func (v *Save) begin(tx *ledger.Tx, run *ledger.RunRow) (ledger.SavedReply, error) {
	r := v.Request
	reply := ledger.SavedReply{ID: r.ID, Seq: run.LastSeq + 1, Parent: r.Parent, CreatedAt: tx.Now, StoredSize: v.State.Stored(), Pruned: []string{}}
	if reply.ID == "" {
		if v.id == "" {
			id, err := uuid.NewV7()
			if err != nil {
				return reply, err
			}
			v.id = id.String()
		}
		reply.ID = v.id
	}
	if reply.Parent == "" {
		reply.Parent = run.Head
	}
	return reply, nil
}

// insertSaved writes the row, the state, the audit row and the findings. parentN is
// the row of the parent's save; 0 where it is to be looked up. takes is
// one that goes, whose row it takes over; nil for a row of its own.
func (s *Saves) insertSaved(tx *ledger.Tx, v *Save, agent *ledger.AgentRow, run *ledger.RunRow, w *driftlog.Watched,
	reply ledger.SavedReply, parentN int64, takes *ledger.HeldRow) error {
	r := v.Request
	row := ledger.CheckpointRow{
		Takes: takes, N: tx.Head.N + 1, ID: reply.ID, Seq: reply.Seq, Kind: r.Kind, Parent: reply.Parent, CreatedAt: reply.CreatedAt,
		ContentType: r.ContentType, Labels: r.Labels, Metadata: ledger.MetadataText(r.Metadata), Step: r.Step, Operation: v.Operation, Program: v.program,
		Suspect: w.Drifting(),
	}
	list, err := tx.InsertRow(run, &row, &v.State)
	if err != nil {
		return err
	}
	s.States.Keep(tx.Tx, blob.RunKey{Owner: agent.Owner, Agent: agent.Name, Run: run.Name}, row.Place(run), &v.State, list)
	e := v.Entry
	e.Subject = row.ID
	if e.Save, err = tx.Facts(run, &row, &v.State, parentN); err != nil {
		return err
	}
	v.n = row.N
	if err := tx.Audit(e); err != nil {
		return err
	}
	s.Share(tx, agent, run, v.Shared(), &row)
	return s.ReportSecrets(tx, agent, run, w, reply.ID, v.secrets)
}

// answer puts the checkpoint together from what was asked and what was decided.
func (v *Save) answer(agent *ledger.AgentRow, reply ledger.SavedReply) *ckpt.Saved {
	r := v.Request
	return &ckpt.Saved{Pruned: reply.Pruned, AsSent: !v.State.Redacted, Checkpoint: ckpt.Checkpoint{
		ID: reply.ID, Agent: agent.Name, Owner: agent.Owner, Run: ledger.RunName(r.Run), Seq: reply.Seq, Kind: r.Kind, Parent: reply.Parent,
		CreatedAt: reply.CreatedAt, Size: v.State.Size, StoredSize: reply.StoredSize, SHA256: v.State.Sha256, ContentType: r.ContentType,
		Labels: r.Labels, Metadata: json.RawMessage(ledger.MetadataText(r.Metadata)), Program: r.Program, Step: r.Step, Suspect: reply.Suspect,
		Trees: r.Trees,
	}}
}

// AppendReply is what json.Marshal writes of a save's reply.
func AppendReply(b []byte, r *ledger.SavedReply) []byte {
	b = ledger.AppendString(append(b, `{"id":`...), r.ID)
	b = strconv.AppendInt(append(b, `,"seq":`...), r.Seq, 10)
	b = ledger.AppendRef(append(b, `,"parent":`...), r.Parent)
	b = ledger.AppendTime(append(b, `,"created_at":`...), r.CreatedAt)
	b = strconv.AppendInt(append(b, `,"stored_size":`...), r.StoredSize, 10)
	if r.Suspect {
		b = append(b, `,"suspect":true`...)
	}
	b = append(b, `,"pruned":[`...)
	for i, id := range r.Pruned {
		if i > 0 {
			b = append(b, ',')
		}
		b = ledger.AppendString(b, id)
	}
	return append(b, "]}"...)
}

// Saves take checkpoints.
type Saves struct {
	*driftlog.Drifts
	Trees namer
}

// namer lets checkpoints name trees of files. internal/db/files is one.
type namer interface {
	// MayName refuses trees that are not there.
	MayName(tx *ledger.Tx, agent *ledger.AgentRow, trees []string) error
	// Name lets a checkpoint name trees, or where there are none those of the one
	// that its run was forked from.
	Name(tx *ledger.Tx, agent *ledger.AgentRow, run *ledger.RunRow, c *ledger.CheckpointRow, trees []string, forkedFrom ckpt.Ref) error
}

// New takes checkpoints of runs that drifts watches.
func New(d *driftlog.Drifts) *Saves { return &Saves{Drifts: d} }
