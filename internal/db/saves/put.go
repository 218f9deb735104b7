package saves

import (
	"cmp"
	"context"

	"github.com/google/uuid"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db/blob"
	"github.com/ckptsidecar/ckptsidecar/internal/db/ledger"
	"github.com/ckptsidecar/ckptsidecar/internal/wellformed"
)

// Save puts a state on disk. It returns after the transaction is flushed that holds the state and
// everything that the save implies: the pruning of its run, the idempotency key, the audit rows.
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

// Put is one save inside the writer's transaction. It refuses before it changes anything, except
// that it may have made the agent and the run.
//
// A repeated save is answered again, even if it would be refused now, so Put first looks for an
// earlier one. It skips this look if the statement that keeps the save's id can find that out: a
// save that is allowed and whose run is in the run cache is most likely new.
func (s *Saves) Put(tx *ledger.Tx, v *Save) (err error) {
	v.Saved = nil
	defer func() {
		if err != nil || v.Saved == nil || v.Saved.Replayed {
			s.Unsee(tx, &v.WatchedSave)
		}
	}()
	c, err := s.find(tx, v)
	if err != nil {
		return err
	}
	asked := c.known == nil || !c.known.Whole || v.key != v.Request.ID || len(v.Request.Trees) > 0 || s.mayPut(tx, v, c) != nil
	if asked {
		if err := s.answerOrRefuse(tx, v, c); err != nil || v.Saved != nil {
			return err
		}
		if err := s.openRun(tx, v, c); err != nil {
			return err
		}
	}
	if err := s.prepare(tx, v, c); err != nil {
		return err
	}
	if v.Request.ID != "" {
		if err := s.rememberID(tx, v, c, asked); err != nil || v.Saved != nil {
			return err
		}
	}
	if err := s.write(tx, v, c); err != nil {
		return err
	}
	v.Saved = v.answer(c.agent, c.reply)
	if v.Saved.Drift, err = s.VerdictFor(tx, c.agent, c.run.Name); err != nil || v.key == v.Request.ID {
		return err
	}
	return tx.RememberText(c.agent.ID, v.key, v.print, AppendReply(nil, &c.reply))
}

// find looks up the agent and the run of a save.
func (s *Saves) find(tx *ledger.Tx, v *Save) (c *coming, err error) {
	c = &coming{}
	if c.agent, err = s.Agent(tx, v.Scope.Whose(), v.Request.Agent); err != nil || c.agent == nil {
		return c, err
	}
	if c.known, err = s.cachedRun(tx, v, c.agent); c.known != nil {
		run := c.known.Run
		c.run = &run
	}
	return c, err
}

// answerOrRefuse answers a repeated save, and refuses a save that is not allowed.
func (s *Saves) answerOrRefuse(tx *ledger.Tx, v *Save, c *coming) error {
	if c.agent != nil {
		replayed, err := s.replaySave(tx, v, c.agent)
		if replayed {
			v.Saved.Drift, err = s.VerdictFor(tx, c.agent, ledger.RunName(v.Request.Run))
		}
		if replayed || err != nil {
			return err
		}
	}
	if v.key != "" {
		former := &ledger.AgentRow{Owner: v.Scope.Whose(), Name: v.Request.Agent}
		reply, found, err := tx.ReplayedFormer(former.Owner, former.Name, v.Request.ID, v.key, v.print)
		if found {
			v.Saved = v.answer(former, reply)
			v.Saved.Replayed, v.Saved.Trees = true, nil
		}
		if found || err != nil {
			return err
		}
	}
	if err := s.mayPut(tx, v, c); err != nil || v.Request.ID == "" {
		return err
	}
	taken, err := tx.IDTaken(v.Scope.Whose(), v.Request.ID)
	if err == nil && taken { // by another agent of the owner, or by this one so long ago that the key is forgotten
		err = ckpt.Errorf(ckpt.CodeIdempotencyMismatch, "the id %s is already used: create a new UUID of version 7 for each save", v.Request.ID)
	}
	return err
}

func (s *Saves) replaySave(tx *ledger.Tx, v *Save, agent *ledger.AgentRow) (bool, error) {
	reply, found, err := tx.ReplayedSave(agent.ID, v.Request.ID, v.print)
	if !found && err == nil {
		found, err = tx.Replayed(agent.ID, v.key, v.print, &reply)
	}
	if found && err == nil {
		v.Saved = v.answer(agent, reply)
		v.Saved.Replayed = true
		if err := v.sayWhatIsStored(tx, agent, v.Saved); err != nil {
			return true, err
		}
		if len(v.Request.Trees) > 0 { // the first request may have named none
			v.Saved.Trees = nil
			if c, err := tx.Reread(agent.Owner, reply.ID); err == nil {
				v.Saved.Trees = c.Trees
			}
		}
	}
	return found, err
}

// sayWhatIsStored corrects the answer to a repeated save: its policy may redact more or less now than when
// the state was stored.
func (v *Save) sayWhatIsStored(tx *ledger.Tx, agent *ledger.AgentRow, saved *ckpt.Saved) error {
	var state struct {
		Size   int64  `db:"size"`
		SHA256 string `db:"sha256"`
	}
	found, err := tx.Get(&state, `SELECT c.size, c.sha256`+ledger.OwnedTables+`?`, saved.ID, agent.Owner)
	if err == nil && found {
		saved.Size, saved.SHA256, saved.AsSent = state.Size, state.SHA256, state.SHA256 == v.State.Sent
	}
	return err
}

// openRun makes the agent and the run if they do not exist, and revives a run that was found dead.
func (s *Saves) openRun(tx *ledger.Tx, v *Save, c *coming) (err error) {
	if c.run != nil {
		return s.Revive(tx, c.run, v.Scope)
	}
	if c.agent == nil {
		if c.agent, err = s.MakeAgent(tx, v.Scope.Whose(), v.Request.Agent); err != nil {
			return err
		}
	}
	if c.run, err = tx.MakeRun(c.agent.ID, ledger.RunName(v.Request.Run), v.Request.Epoch); err != nil || v.Request.ForkFrom == "" {
		return err
	}
	return v.fork(tx, c.agent, c.run)
}

// fork notes what a new run was forked from. In the same agent, that is the parent of its first
// checkpoint.
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

// prepare decides what a save's reply will be, lets the run's watch see the save, and plans which
// checkpoints are removed because of it. It changes nothing on disk.
func (s *Saves) prepare(tx *ledger.Tx, v *Save, c *coming) (err error) {
	r := v.Request
	if v.id = cmp.Or(r.ID, v.id); v.id == "" {
		id, err := uuid.NewV7()
		if err != nil {
			return err
		}
		v.id = id.String()
	}
	c.reply = ledger.SavedReply{ID: v.id, Seq: c.run.LastSeq + 1, Parent: cmp.Or(r.Parent, c.run.Head), CreatedAt: tx.Now,
		StoredSize: v.State.Stored(), Pruned: []string{}}
	if c.watch, err = s.WatchRun(tx, c.agent, c.run, v.PastOf()); err != nil {
		return err
	}
	s.SeeSave(tx, &v.WatchedSave, v.State.Size, c.agent, c.run, c.watch, c.reply)
	return s.planSave(tx, v, c)
}

// rememberID keeps the id of a save that is about to be written. If the id turns out not to be new,
// and asked is false, it answers or refuses the save.
func (s *Saves) rememberID(tx *ledger.Tx, v *Save, c *coming, asked bool) error {
	if !asked {
		isNew, err := tx.RememberNewID(c.agent.ID, v.key, v.print, tx.Head.N+1)
		if isNew || err != nil {
			return err
		}
		if err := s.answerOrRefuse(tx, v, c); err != nil || v.Saved != nil {
			return err
		}
	}
	return tx.RememberID(c.agent.ID, v.key, v.print, tx.Head.N+1)
}

// write writes the prepared save and its consequences for the run. If there is no plan, it applies
// retention afterwards.
func (s *Saves) write(tx *ledger.Tx, v *Save, c *coming) error {
	if err := c.makeRoom(tx); err != nil {
		return err
	}
	if err := s.insert(tx, v, c); err != nil {
		return err
	}
	if c.planned {
		return s.carryOut(tx, v, c)
	}
	return s.follow(tx, v, c)
}

// insert writes the row, the state, the audit row, and findings of secrets.
func (s *Saves) insert(tx *ledger.Tx, v *Save, c *coming) error {
	r := v.Request
	row := ledger.CheckpointRow{
		Takes: c.taken, N: tx.Head.N + 1, ID: c.reply.ID, Seq: c.reply.Seq, Kind: r.Kind, Parent: c.reply.Parent, CreatedAt: c.reply.CreatedAt,
		ContentType: r.ContentType, Labels: r.Labels, Metadata: ledger.MetadataText(r.Metadata), Step: r.Step,
		Operation: v.Operation, Program: v.program,
		Suspect: c.watch.Drifting(),
	}
	list, err := tx.InsertRow(c.run, &row, &v.State)
	if err != nil {
		return err
	}
	key := blob.RunKey{Owner: c.agent.Owner, Agent: c.agent.Name, Run: c.run.Name}
	s.States.Keep(tx.Tx, key, row.Place(c.run), &v.State, list)
	e := v.Entry
	e.Subject = row.ID
	if e.Save, err = tx.Facts(c.run, &row, &v.State, c.parentN); err != nil {
		return err
	}
	v.n = row.N
	if err := tx.Audit(e); err != nil {
		return err
	}
	s.Share(tx, c.agent, c.run, v.Shared(), &row)
	return s.ReportSecrets(tx, c.agent, c.run, c.watch, c.reply.ID, v.secrets)
}

// follow handles the consequences of a save that was written without a plan: its files, its
// findings, and retention.
func (s *Saves) follow(tx *ledger.Tx, v *Save, c *coming) error {
	if err := tx.NoteSaved(c.run); err != nil {
		return err
	}
	if r := v.Request; len(r.Trees) > 0 || r.ForkFrom != "" {
		row := &ledger.CheckpointRow{N: v.n, ID: c.reply.ID, Seq: c.reply.Seq}
		if err := s.Trees.Name(tx, c.agent, c.run, row, r.Trees, r.ForkFrom); err != nil {
			return err
		}
	}
	all, err := s.FoundInSave(tx, &v.WatchedSave, c.agent, c.run, c.watch, c.reply)
	if err != nil {
		return err
	}
	c.reply.Suspect = c.watch.Covers(c.reply.Seq)
	tx.AmendSave(v.n, c.reply.Suspect)
	c.reply.Pruned, err = s.RetainSaved(tx, c.agent, c.run, c.reply.Seq, v.Request.Kind, all, v.Entry.Into(v.n))
	return err
}

// InsertCheckpoint writes a checkpoint that was admitted and has no key, with all consequences for
// its run.
func (s *Saves) InsertCheckpoint(tx *ledger.Tx, v *Save, agent *ledger.AgentRow, run *ledger.RunRow) (ledger.SavedReply, error) {
	c := &coming{agent: agent, run: run}
	err := s.prepare(tx, v, c)
	if err == nil {
		err = s.write(tx, v, c)
	}
	return c.reply, err
}
