package saves

import (
	"cmp"

	"github.com/google/uuid"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db/blob"
	"github.com/ckptsidecar/ckptsidecar/internal/db/driftlog"
	"github.com/ckptsidecar/ckptsidecar/internal/db/ledger"
)

// coming is a checkpoint that is about to be written, and the run that it comes into.
type coming struct {
	agent *ledger.AgentRow  // nil while there is none
	run   *ledger.RunRow    // as it will be; nil while there is none
	known *ledger.CachedRun // what was known of the run before; nil for nothing
	watch *driftlog.Watched
	reply ledger.SavedReply
	plan
}

// Put is one save inside the writer's transaction. It refuses before it changes
// anything, except that it may have made the agent and the run.
//
// A save that was made before is answered again, even if it would be refused now, so it
// is asked for first. It is not where the statement that keeps its id can say so: a save
// that may be made into a run of the run cache is most likely new.
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

// find looks for the agent and the run of a save.
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

// answerOrRefuse answers a save that was made before, and refuses one that may not be
// made.
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
		if len(v.Request.Trees) > 0 { // the first request may have named none
			v.Saved.Trees = nil
			if c, err := tx.Reread(agent.Owner, reply.ID); err == nil {
				v.Saved.Trees = c.Trees
			}
		}
	}
	return found, err
}

// mayPut refuses a save that breaks its agent's policy or schema, for which there is no
// room here or in the fleet, that names what is not there, or whose writer was fenced off.
func (s *Saves) mayPut(tx *ledger.Tx, v *Save, c *coming) error {
	if err := s.Admit(tx, v, c.known); err != nil {
		return err
	}
	if err := s.MayAddToFleet(v.Scope.Whose(), v.Request.Agent); err != nil {
		return err
	}
	if err := s.mayNameTrees(tx, v, c.agent); err != nil {
		return err
	}
	if c.run != nil {
		if err := s.MayWrite(c.run, v.Scope, v.Request.Epoch); err != nil {
			return err
		}
	}
	if v.Request.ForkFrom != "" {
		if err := v.checkFork(tx, c.run); err != nil {
			return err
		}
	}
	if v.Request.Parent == "" {
		return nil
	}
	return CheckParent(tx, c.agent, string(v.Request.Parent))
}

// Admit refuses a save that breaks its agent's policy or schema, or for which its
// owner has no room left. known is nil where nothing is known of the run.
func (s *Saves) Admit(tx *ledger.Tx, v *Save, known *ledger.CachedRun) error {
	if v.State.Refused != nil {
		return v.State.Refused
	}
	if v.Drift != nil && v.Drift.Refused != nil {
		return v.Drift.Refused
	}
	if !known.NewestIs(v.State.Base) {
		if err := blob.Settle(tx.Tx, &v.State); err != nil {
			return err
		}
	}
	return s.Usage.MayStore(&tx.Tally, v.Scope.Whose(), v.State.Stored(), 0)
}

// mayNameTrees refuses trees that are not there. A save from a spool comes too late for
// its files: it is made without them.
func (s *Saves) mayNameTrees(tx *ledger.Tx, v *Save, agent *ledger.AgentRow) error {
	if len(v.Request.Trees) == 0 {
		return nil
	}
	err := s.Trees.MayName(tx, agent, v.Request.Trees)
	if ckpt.CodeOf(err) == ckpt.CodeFilesMissing && !v.Scope.Spooled.IsZero() {
		bare := *v.Request
		bare.Trees = nil
		v.Request, err = &bare, nil
	}
	return err
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

// CheckParent refuses a parent that is not a checkpoint of the agent.
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

// openRun makes the agent and the run where they are not there, and takes back that the
// run was found dead.
func (s *Saves) openRun(tx *ledger.Tx, v *Save, c *coming) (err error) {
	if c.run != nil {
		return s.Revive(tx, c.run, v.Scope)
	}
	if c.agent == nil {
		if c.agent, err = s.MakeAgent(tx, v.Scope.Whose(), v.Request.Agent); err != nil {
			return err
		}
	}
	if c.run, err = tx.MakeRun(c.agent.ID, ledger.RunName(v.Request.Run)); err != nil || v.Request.ForkFrom == "" {
		return err
	}
	return v.fork(tx, c.agent, c.run)
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

// prepare decides what a save's answer will be, lets the run's watch see it, and plans
// what goes because of it. It changes nothing on disk.
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

// rememberID keeps the id of a save that is about to be written. Where it is not new,
// and that was not asked, the save is answered or refused.
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

// write writes what was prepared, and what follows for the run. Where nothing was
// planned, retention is asked afterwards.
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

// follow does what follows from a save that was written without a plan: its files, its
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

// InsertCheckpoint writes a checkpoint that was admitted and has no key, with all that
// follows for its run.
func (s *Saves) InsertCheckpoint(tx *ledger.Tx, v *Save, agent *ledger.AgentRow, run *ledger.RunRow) (ledger.SavedReply, error) {
	c := &coming{agent: agent, run: run}
	err := s.prepare(tx, v, c)
	if err == nil {
		err = s.write(tx, v, c)
	}
	return c.reply, err
}
