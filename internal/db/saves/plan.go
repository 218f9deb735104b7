package saves

import (
	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db/driftlog"
	"github.com/ckptsidecar/ckptsidecar/internal/db/ledger"
	"github.com/ckptsidecar/ckptsidecar/internal/db/usage"
)

// coming is a checkpoint that is about to be written, and its run.
type coming struct {
	agent *ledger.AgentRow  // nil if there is none yet
	run   *ledger.RunRow    // as it will be; nil if there is none yet
	known *ledger.CachedRun // what was known of the run before; nil if nothing was
	watch *driftlog.Watched
	reply ledger.SavedReply
	plan
}

// plan says which of a run's routine checkpoints stay, the new one included, and which are removed.
type plan struct {
	planned    bool // false if this can only be decided after the save
	stay, gone []ledger.HeldRow
	reasons    []string
	parentN    int64           // the row of the parent's save; 0 if it must be looked up
	taken      *ledger.HeldRow // a removed checkpoint whose row the new one takes; nil if there is none
}

// plain says that a save is a routine one, follows its run's newest checkpoint, and names no files.
func (v *Save) plain() bool {
	r := v.Request
	return r.Kind == ckpt.KindRoutine && r.Parent == "" && r.ForkFrom == "" && len(r.Trees) == 0
}

// planSave asks retention before anything is written. It makes no plan if the whole run must be
// judged, or if what the watch saw first changes the run.
func (s *Saves) planSave(tx *ledger.Tx, v *Save, c *coming) error {
	if c.known == nil || !c.known.Whole || !v.plain() || c.watch.Drifting() || v.Seen.Any() || s.BackMoves(c.run, c.watch) {
		return nil
	}
	keep := c.agent.Settings.RoutineKeep
	rows := make([]ledger.HeldRow, 0, len(c.known.Rows)+1)
	if keep > 0 {
		rows = append(rows, v.held(tx, c))
	}
	rows = append(rows, c.known.Rows...)
	c.parentN = c.known.HeadN
	if c.stay, c.planned = rows, ledger.AllStay(rows, keep); c.planned || keep == 0 {
		return nil
	}
	after := *c.run
	after.LastSeq, after.Head = c.reply.Seq, ckpt.Ref(c.reply.ID)
	neededBy := tx.NeededBy
	if c.known.Quiet && !c.run.BackSeq.Valid {
		neededBy = nobodyNeeds
	}
	verdicts, err := tx.Judge(s.Opt.Retention, c.agent.Settings, tx.Trusted.Time, &after, rows, neededBy)
	if err != nil {
		return err
	}
	c.planned = true
	c.stay, c.gone, c.reasons = ledger.Sorted(rows, verdicts)
	if !c.known.Graph && v.State.Body != nil {
		c.take(c.reply.Seq)
	}
	for i := range c.gone {
		c.reply.Pruned = append(c.reply.Pruned, c.gone[i].ID)
	}
	return nil
}

func nobodyNeeds(*ledger.RunRow, string) (string, error) { return "", nil }

// held is the new checkpoint in the form that retention needs.
func (v *Save) held(tx *ledger.Tx, c *coming) ledger.HeldRow {
	r, reply := v.Request, &c.reply
	return ledger.HeldRow{
		Slot: ledger.Slot(c.run.ID, reply.Seq), N: tx.Head.N + 1, ID: reply.ID, Seq: reply.Seq, Kind: r.Kind,
		CreatedAt: ledger.Lenient[ckpt.Time]{Value: reply.CreatedAt}, StoredSize: reply.StoredSize, Inline: v.State.Body != nil,
		Beside: usage.RowLength(reply.ID, string(r.Kind), reply.Parent, reply.CreatedAt, v.State.Sha256, r.ContentType,
			r.Labels, ledger.MetadataText(r.Metadata), r.Step, v.Operation, v.program),
	}
}

// take gives the row of a removed small checkpoint to the new small state. Then only that page is
// written. seq is the new checkpoint's.
func (p *plan) take(seq int64) {
	for i := range p.gone {
		if row := &p.gone[i]; row.Inline && row.Kind == ckpt.KindRoutine && !row.Pinned {
			p.taken = row
		}
	}
	for i := range p.stay {
		if p.taken != nil && p.stay[i].Seq == seq {
			p.stay[i].Slot = p.taken.Slot
		}
	}
}

// makeRoom removes small states before the new one is written, so that it finds their space. In the
// other order, the table would grow by a page and shrink again at every save.
func (p *plan) makeRoom(tx *ledger.Tx) error {
	if p.taken != nil {
		if err := tx.GiveRow(p.taken); err != nil {
			return err
		}
	}
	return tx.RemoveInline(p.gone)
}

// carryOut removes the planned checkpoints, and notes the run as it is after that.
func (s *Saves) carryOut(tx *ledger.Tx, v *Save, c *coming) error {
	if _, err := s.RemoveRows(tx, c.agent, c.run, c.gone, c.reasons, v.Entry.Into(v.n)); err != nil {
		return err
	}
	c.known.Run, c.known.Rows, c.known.HeadN = *c.run, c.stay, v.n // a rollback clears all of it
	return tx.NoteCachedSaved(c.run)
}

// cachedRun returns what is known of a run, nil if there is none. A run that is saved again and
// again is kept in the run cache with everything that a plan needs.
func (s *Saves) cachedRun(tx *ledger.Tx, v *Save, agent *ledger.AgentRow) (*ledger.CachedRun, error) {
	name := ledger.RunName(v.Request.Run)
	if known := s.RunCache.Get(agent.ID, name); known != nil {
		return known, nil
	}
	run, err := tx.Run(agent.ID, name)
	if err != nil || run == nil {
		return nil, err
	}
	known := &ledger.CachedRun{Run: *run}
	if v.plain() {
		err = complete(tx, agent, known)
	}
	if known.Whole {
		s.RunCache.Put(known)
	}
	return known, err
}

// complete adds what a plan needs. It does so only for a run that is running and was saved since it
// began, whose policy keeps few checkpoints, and whose newest checkpoint is clean.
func complete(tx *ledger.Tx, agent *ledger.AgentRow, known *ledger.CachedRun) (err error) {
	run, keep := &known.Run, agent.Settings.RoutineKeep
	if run.Status != ckpt.RunRunning || run.LastSeq == 0 || keep >= ledger.CachedRowsMost {
		return nil
	}
	if known.Rows, err = tx.RoutineRows(run, keep); err != nil {
		return err
	}
	if len(known.Rows) > ledger.CachedRowsMost || len(known.Rows) > 0 && known.Rows[0].Suspect {
		return nil
	}
	_, err = tx.Get(&known.Quiet, `SELECT NOT EXISTS (SELECT 1 FROM operations WHERE run_id = ?1 AND checkpoint IS NOT NULL
		AND status IN ('open', 'uncertain'))
		AND NOT EXISTS (SELECT 1 FROM prompts WHERE run_id = ?1 AND checkpoint IS NOT NULL AND answered_at IS NULL)
		AND NOT EXISTS (SELECT 1 FROM runs f JOIN checkpoints c ON c.id = f.forked_from JOIN agents a ON a.id = f.agent_id
		WHERE c.run_id = ?1 AND f.forked_from IS NOT NULL AND f.last_seq = 0 AND f.ended_at IS NULL AND a.owner = ?2)`, run.ID, agent.Owner)
	if err != nil {
		return err
	}
	if _, err := tx.Get(&known.Graph, `SELECT EXISTS (SELECT 1 FROM graph_threads WHERE run_id = ?)`, run.ID); err != nil {
		return err
	}
	_, err = tx.Get(&known.HeadN, `SELECT c.n`+ledger.OwnedTables+`?`, run.Head, agent.Owner)
	known.Whole = err == nil
	return err
}
